//! "Did you mean …?": the known word that is nearest to one that is not known.

/// The known word that the user may have meant; `None` where none is near. Case, `-` and `_` make
/// no difference.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = letters(word);
    // Of one or two letters everything is near, and nothing is meant.
    if word.chars().count() < 3 {
        return None;
    }
    let distance = |known: &str| strsim::osa_distance(&word, &letters(known));
    // A slip in every third letter, or a beginning.
    let most = word.chars().count().div_ceil(3).min(3);
    let by_distance = known.into_iter().map(|known| (distance(known), known));
    by_distance
        .filter(|(distance, known)| *distance <= most || letters(known).starts_with(&word))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// `forms; did you mean NAME?`, or the forms alone where no name is near.
pub fn hint<'a>(forms: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(word, known) {
        Some(name) => format!("{forms}; did you mean {name}?"),
        None => forms.to_owned(),
    }
}

/// `did you mean NAME?`, or all the names, as `kind: a, b`, where none is near.
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
    fn the_nearest_known_word_is_found_and_no_far_one() {
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
