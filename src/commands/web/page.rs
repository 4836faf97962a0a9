//! The files of the page. They are embedded in the binary, so no request can name another path.

use super::auth::Auth;
use super::refused::Refused;
use super::visitors;
use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use slotd_model::End;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const ICON: &str = "image/svg+xml; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const PAGE: &str = include_str!("page/index.html");

/// The placeholder of the key.
const KEY_PLACE: &str = "<meta name=\"key\" content=\"\">";

/// The placeholders of the names of all end states, and of those that are failures.
const ENDS_PLACE: &str = "<meta name=\"ends\" content=\"\">";
const FAILURES_PLACE: &str = "<meta name=\"failures\" content=\"\">";

/// The placeholder of the short names of all end states, in the same order.
const CODES_PLACE: &str = "<meta name=\"codes\" content=\"\">";

/// A file in `page/` with its name and type.
macro_rules! files {
    ($($name:literal: $kind:ident),* $(,)?) => {
        &[$(($name, $kind, include_str!(concat!("page/", $name)))),*]
    };
}

const FILES: &[(&str, &str, &str)] = files![
    "app.css": CSS,
    "icon.svg": ICON,
    "actions.js": SCRIPT,
    "ansi.js": SCRIPT,
    "app.js": SCRIPT,
    "ask.js": SCRIPT,
    "days.js": SCRIPT,
    "diff.js": SCRIPT,
    "dom.js": SCRIPT,
    "edit.js": SCRIPT,
    "env.js": SCRIPT,
    "facts.js": SCRIPT,
    "figures.js": SCRIPT,
    "find.js": SCRIPT,
    "history.js": SCRIPT,
    "host.js": SCRIPT,
    "items.js": SCRIPT,
    "job.js": SCRIPT,
    "keys.js": SCRIPT,
    "lanes.js": SCRIPT,
    "lines.js": SCRIPT,
    "list.js": SCRIPT,
    "log.js": SCRIPT,
    "marks.js": SCRIPT,
    "menu.js": SCRIPT,
    "plot.js": SCRIPT,
    "queue.js": SCRIPT,
    "reserved.js": SCRIPT,
    "rows.js": SCRIPT,
    "sentence.js": SCRIPT,
    "shell.js": SCRIPT,
    "states.js": SCRIPT,
    "store.js": SCRIPT,
    "submit.js": SCRIPT,
    "tabs.js": SCRIPT,
    "ticks.js": SCRIPT,
    "timeline.js": SCRIPT,
    "waiting.js": SCRIPT,
    "words.js": SCRIPT,
];

#[derive(Debug, Deserialize)]
pub struct Opening {
    token: Option<String>,
}

/// Returns the page with the end states that its scripts need.
fn page() -> String {
    let names = |is_wanted: fn(End) -> bool, name: fn(End) -> &'static str| {
        let ends = End::ALL.iter().copied().filter(|end| is_wanted(*end));
        ends.map(name).collect::<Vec<_>>().join(",")
    };
    let page = filled(PAGE.to_owned(), ENDS_PLACE, &names(|_| true, End::name));
    let page = filled(page, CODES_PLACE, &names(|_| true, End::code));
    filled(page, FAILURES_PLACE, &names(End::is_failure, End::name))
}

/// Fills a placeholder, which is an element with empty content.
fn filled(page: String, place: &str, content: &str) -> String {
    page.replace(place, &place.replace("content=\"\"", &format!("content=\"{content}\"")))
}

/// Serves the page to a request with the token, which is then consumed, or with the session cookie.
/// Only the first response contains the key.
pub async fn open(
    request: HttpRequest,
    auth: web::Data<Auth>,
    opening: web::Query<Opening>,
) -> Result<HttpResponse, Refused> {
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::CONTENT_TYPE, HTML));
    if let Some((cookie, key)) = opening.token.as_deref().and_then(|token| auth.enter(token)) {
        visitors::authenticated(&request);
        answer.insert_header((header::SET_COOKIE, cookie));
        return Ok(answer.body(filled(page(), KEY_PLACE, key)));
    }
    if auth.knows(&request) {
        visitors::authenticated(&request);
        return Ok(answer.body(page()));
    }
    let why = "this URL was already used or belongs to another server: restart slotd web and open the new URL";
    Err(Refused { status: StatusCode::UNAUTHORIZED, why: why.to_owned() })
}

pub async fn file(name: web::Path<String>) -> Result<HttpResponse, Refused> {
    let found = FILES.iter().find(|(known, ..)| *known == name.as_str());
    let (_, kind, text) = found.ok_or_else(|| Refused::missing("no such file"))?;
    Ok(HttpResponse::Ok().insert_header((header::CONTENT_TYPE, *kind)).body(*text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_its_placeholders_and_loads_nothing_from_other_sites() {
        for place in [KEY_PLACE, ENDS_PLACE, FAILURES_PLACE, CODES_PLACE] {
            assert_eq!(PAGE.matches(place).count(), 1, "{place}");
        }
        for (name, text) in
            FILES.iter().map(|(name, _, text)| (*name, *text)).chain([("index.html", PAGE)])
        {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "https://",
                " style=\"",
            ] {
                assert!(!text.contains(word), "{name} has {word}");
            }
        }
    }

    #[test]
    fn scripts_and_styles_name_no_failure_state() {
        let page = page();
        assert!(page.contains("name=\"ends\" content=\"COMPLETED,FAILED,CANCELLED,"), "{page}");
        assert!(page.contains("name=\"failures\" content=\"FAILED,TIMEOUT,"), "{page}");
        for end in End::ALL.iter().filter(|end| **end != End::Completed) {
            for (name, _, text) in FILES {
                let quoted = format!("\"{}\"", end.name());
                assert!(!text.contains(&quoted), "{name} has {quoted}");
            }
        }
    }

    #[test]
    fn every_imported_file_exists() {
        let names: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        for (_, _, text) in FILES {
            for (at, rest) in text.split(" from \"./").enumerate().skip(1) {
                let file = rest.split('"').next().unwrap_or(rest);
                assert!(names.contains(&file), "{file}, import {at}");
            }
        }
    }
}
