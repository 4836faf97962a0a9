//! "Did you mean …?" suggestions: the known word nearest to an unknown one.

/// Returns the known word that the user may have meant, if any is near enough. Case, `-` and `_`
/// are ignored.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = letters(word);
    // One or two letters resemble too many words.
    if word.chars().count() < 3 {
        return None;
    }
    // One typo in three letters, or a prefix.
    let length = word.chars().count();
    let most = length.div_ceil(3).min(3);
    let distance = |known: &str| {
        let known = letters(known);
        // Computing the distance takes the product of both lengths, and it is at least their
        // difference.
        match known.chars().count().abs_diff(length) {
            differing if differing > most => usize::MAX,
            _ => strsim::osa_distance(&word, &known),
        }
    };
    let by_distance = known.into_iter().map(|known| (distance(known), known));
    by_distance
        .filter(|(distance, known)| *distance <= most || letters(known).starts_with(&word))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Returns `forms; did you mean NAME?`, or only the forms if no name is near.
pub fn hint<'a>(forms: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(word, known) {
        Some(name) => format!("{forms}; did you mean {name}?"),
        None => forms.to_owned(),
    }
}

/// Returns `did you mean NAME?`, or all names as `kind: a, b` if none is near.
pub fn one_of<'a>(kind: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("{kind}: {}", known.join(", ")),
    }
}

fn letters(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["JobID", "JobName", "NodeList", "StateCompact", "tres-alloc", "State"];
        for (word, expected) in [
            ("JobNmae", Some("JobName")),
            ("nodelst", Some("NodeList")),
            ("statecomp", Some("StateCompact")),
            ("TRES_ALOC", Some("tres-alloc")),
            ("stat", Some("State")),
            ("jobidd", Some("JobID")),
            ("nosuch", None),
            ("i", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(hint("one or two", "Sate", known), "one or two; did you mean State?");
        assert_eq!(hint("one or two", "xyzzy", known), "one or two");
        assert_eq!(one_of("names", "cup", ["cpu", "gpu"]), "did you mean cpu?");
        assert_eq!(one_of("names", "x", ["cpu", "gpu"]), "names: cpu, gpu");
    }
}
