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
const SCRIPT: &str = "text/javascript; charset=utf-8";

const PAGE: &str = include_str!("page/index.html");

/// The placeholder of the key.
const KEY_PLACE: &str = "<meta name=\"key\" content=\"\">";

/// The placeholders of the names of all end states, and of those that are failures.
const ENDS_PLACE: &str = "<meta name=\"ends\" content=\"\">";
const FAILURES_PLACE: &str = "<meta name=\"failures\" content=\"\">";

const FILES: [(&str, &str, &str); 13] = [
    ("app.css", CSS, include_str!("page/app.css")),
    ("app.js", SCRIPT, include_str!("page/app.js")),
    ("ask.js", SCRIPT, include_str!("page/ask.js")),
    ("dom.js", SCRIPT, include_str!("page/dom.js")),
    ("edit.js", SCRIPT, include_str!("page/edit.js")),
    ("history.js", SCRIPT, include_str!("page/history.js")),
    ("host.js", SCRIPT, include_str!("page/host.js")),
    ("job.js", SCRIPT, include_str!("page/job.js")),
    ("log.js", SCRIPT, include_str!("page/log.js")),
    ("plot.js", SCRIPT, include_str!("page/plot.js")),
    ("queue.js", SCRIPT, include_str!("page/queue.js")),
    ("submit.js", SCRIPT, include_str!("page/submit.js")),
    ("timeline.js", SCRIPT, include_str!("page/timeline.js")),
];

#[derive(Debug, Deserialize)]
pub struct Opening {
    token: Option<String>,
}

/// Returns the page with the end states that its scripts need.
fn page() -> String {
    let names = |is_wanted: fn(End) -> bool| {
        let ends = End::ALL.iter().filter(|end| is_wanted(**end));
        ends.map(|end| end.name()).collect::<Vec<_>>().join(",")
    };
    let page = filled(PAGE.to_owned(), ENDS_PLACE, &names(|_| true));
    filled(page, FAILURES_PLACE, &names(End::is_failure))
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
        for place in [KEY_PLACE, ENDS_PLACE, FAILURES_PLACE] {
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
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let file = line
                    .split("\"./")
                    .nth(1)
                    .and_then(|rest| rest.split('"').next())
                    .unwrap_or(line);
                assert!(names.contains(&file), "{line}");
            }
        }
    }
}
