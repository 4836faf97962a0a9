//! Shell completions for all commands.
//!
//! The scripts only pass the command line to `slotd complete` (`commands::complete`), so that they
//! never differ from the installed program.

use super::{File, MARK};
use crate::commands;

/// The supported shells.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Returns the completion files for a shell, one for each command, or `None` for an unsupported
/// shell.
pub fn files(shell: &str) -> Option<Vec<File>> {
    let script = match shell {
        "bash" => BASH,
        "zsh" => ZSH,
        "fish" => FISH,
        _ => return None,
    };
    let file = |(name, _): (&str, _)| {
        let text = script.replace("NAME", name).replace("FUNCTION", &name.replace('-', "_"));
        File { name: file_name(shell, name), text: format!("{text}\n# {MARK}\n").into() }
    };
    Some(commands::definitions().map(file).collect())
}

/// Returns the file name under which a shell finds the completions of a command.
pub fn file_name(shell: &str, command: &str) -> String {
    match shell {
        "zsh" => format!("_{command}"),
        "fish" => format!("{command}.fish"),
        _ => command.to_owned(),
    }
}

/// Without candidates, bash completes paths. It inserts no space after `--option=` and the like.
const BASH: &str = r#"_slotd_FUNCTION() {
    local IFS=$'\n'
    COMPREPLY=($(slotd complete bash -- "$2" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -F _slotd_FUNCTION NAME
"#;

const ZSH: &str = r#"#compdef NAME
_slotd_FUNCTION() {
    local -a lines described bare
    local line
    lines=("${(@f)$(slotd complete zsh -- '' "${(j: :)${(@)words[1,CURRENT-1]}} $PREFIX" 2>/dev/null)}")
    for line in $lines; do
        if [[ $line == *$'\t'* ]]; then
            described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        elif [[ $line == *= ]]; then
            bare+=("$line")
        else
            described+=("${line//:/\\:}")
        fi
    done
    if (( ! ${#described} && ! ${#bare} )); then
        _files
        return
    fi
    (( ${#bare} )) && compadd -S '' -a bare
    (( ${#described} )) && _describe -V NAME described
}
if [ "$funcstack[1]" = _NAME ]; then _slotd_FUNCTION "$@"; else compdef _slotd_FUNCTION NAME; fi
"#;

const FISH: &str = r#"function __slotd_FUNCTION
    set -l found (slotd complete fish -- '' (commandline -cp) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c NAME -f -k -a '(__slotd_FUNCTION)'
"#;
