//! Slurm's checks of a batch script.

use crate::error::SpecError;

/// Checks whether a file can be a batch script.
///
/// # Errors
/// Fails with Slurm's error text, which may have several lines, and exit code 1.
pub fn check(script: &[u8]) -> Result<(), SpecError> {
    if script.is_empty() {
        return Err(SpecError::value("Batch script is empty!"));
    }
    if script.iter().all(u8::is_ascii_whitespace) {
        return Err(SpecError::value("Batch script contains only whitespace!"));
    }
    if !script.starts_with(b"#!") {
        return Err(SpecError::value(
            "This does not look like a batch script.  The first\n\
             line must start with #! followed by the path to an interpreter.\n\
             For instance: #!/bin/sh",
        ));
    }
    if script.contains(&0) {
        return Err(SpecError::value(
            "The SLURM controller does not allow scripts that\ncontain a NULL character '\\0'.",
        ));
    }
    if script.windows(2).any(|pair| pair == b"\r\n") {
        return Err(SpecError::value(
            "Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n).",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scripts_that_slurm_refuses_are_refused_with_its_texts() {
        let text = |script: &[u8]| check(script).map_err(|e| (e.to_string(), e.exit_code()));
        assert_eq!(text(b"#!/bin/sh\necho\n"), Ok(()));
        assert_eq!(text(b"#!/usr/bin/env python3\n\xff"), Ok(()));
        assert_eq!(text(b""), Err(("Batch script is empty!".to_string(), 1)));
        assert_eq!(text(b" \n"), Err(("Batch script contains only whitespace!".to_string(), 1)));
        assert_eq!(
            text(b"echo hi\n"),
            Err((
                "This does not look like a batch script.  The first\nline must start with #! followed by the path to \
                 an interpreter.\nFor instance: #!/bin/sh"
                    .to_string(),
                1
            ))
        );
        assert_eq!(
            text(b"#!/bin/sh\r\necho\r\n"),
            Err((
                "Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n)."
                    .to_string(),
                1
            ))
        );
        assert!(check(b"#!/bin/sh\n\0").is_err_and(|e| e.to_string().contains("NULL character")));
    }

    proptest! {
        #[test]
        fn no_script_breaks_the_checks(script in ".*", bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = check(&bytes);
            let _ = check(script.as_bytes());
        }
    }
}
