//! Authentication. Any user of this host can connect to a loopback port, and any page in a browser
//! can send requests to it. The server therefore answers only requests with a secret that it gave
//! to the user who started it.
//!
//! - The token is part of the printed URL. It opens the page once.
//! - The session is a cookie, which the browser hides from scripts and from other sites, but not
//!   from other ports of this host.
//! - The key is part of the page that the token opened. The page stores it for its own origin,
//!   which includes the port. Every request to the API needs both the session and the key.
//! - Requests with a foreign host name are refused: another site can resolve its own name to this
//!   address (DNS rebinding).

use super::refused::Refused;
use actix_web::HttpRequest;
use actix_web::http::{StatusCode, header};
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

/// The request header that contains the key.
pub const KEY_HEADER: &str = "X-Slotd-Key";

/// The host names that a browser on this host, or at the other end of a tunnel, may use.
const OWN_NAMES: [&str; 3] = ["127.0.0.1", "[::1]", "localhost"];

#[derive(Debug)]
pub struct Auth {
    /// `None` once it was used.
    token: Mutex<Option<String>>,
    session: String,
    key: String,
}

/// The headers and the path that decide whether a request is allowed.
#[derive(Debug, Clone, Copy, Default)]
struct Caller<'a> {
    path: &'a str,
    host: Option<&'a str>,
    origin: Option<&'a str>,
    /// `Sec-Fetch-Site`: the relation between the requesting page and this server.
    site: Option<&'a str>,
    cookies: Option<&'a str>,
    key: Option<&'a str>,
}

impl Auth {
    /// # Errors
    /// Fails if `/dev/urandom` cannot be read.
    pub fn new() -> io::Result<Auth> {
        Ok(Auth { token: Mutex::new(Some(secret()?)), session: secret()?, key: secret()? })
    }

    /// Returns the token; empty once it was used.
    pub fn token(&self) -> String {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }

    /// Consumes the token and returns the cookie and the key of the session; `None` if the token is
    /// wrong or already used.
    pub fn enter(&self, token: &str) -> Option<(String, &str)> {
        let mut kept = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take_if(|known| is_same(known, token))?;
        Some((format!("slotd={}; Path=/; HttpOnly; SameSite=Strict", self.session), &self.key))
    }

    /// Returns whether the request has the session cookie.
    pub fn knows(&self, request: &HttpRequest) -> bool {
        self.has_session(&caller(request))
    }

    fn has_session(&self, caller: &Caller<'_>) -> bool {
        let cookies = caller.cookies.unwrap_or_default().split(';');
        cookies
            .filter_map(|cookie| cookie.trim().strip_prefix("slotd="))
            .any(|shown| is_same(&self.session, shown))
    }

    /// Returns the error for a request that is not allowed.
    pub fn refuses(&self, request: &HttpRequest) -> Option<Refused> {
        let (status, why) = self.refuses_caller(&caller(request))?;
        Some(Refused { status, why: why.to_owned() })
    }

    fn refuses_caller(&self, caller: &Caller<'_>) -> Option<(StatusCode, &'static str)> {
        let Some(host) = caller.host.filter(|host| is_own(host)) else {
            return Some((
                StatusCode::MISDIRECTED_REQUEST,
                "unknown host name: open the URL that slotd web printed",
            ));
        };
        let is_page = caller.path == "/";
        let is_foreign = caller.origin.is_some_and(|origin| origin.strip_prefix("http://") != Some(host))
            // Any site may link to the page.
            || (!is_page && caller.site.is_some_and(|site| !["same-origin", "none"].contains(&site)));
        if is_foreign {
            return Some((StatusCode::FORBIDDEN, "requests from other sites are not allowed"));
        }
        if is_page {
            return None;
        }
        if !self.has_session(caller) {
            return Some((
                StatusCode::UNAUTHORIZED,
                "this browser has no session: restart slotd web and open the new URL",
            ));
        }
        // A browser loads the files of the page without custom headers. Every other path needs the
        // key, because `/%61pi/submit` is the same as `/api/submit`.
        let needs_key = !caller.path.starts_with("/page/");
        let has_key = caller.key.is_some_and(|shown| is_same(&self.key, shown));
        (needs_key && !has_key).then_some((
            StatusCode::FORBIDDEN,
            "this request has no valid key: open the URL of slotd web in this tab",
        ))
    }
}

fn caller(request: &HttpRequest) -> Caller<'_> {
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    Caller {
        path: request.path(),
        host: text(header::HOST.as_str()),
        origin: text(header::ORIGIN.as_str()),
        site: text("sec-fetch-site"),
        cookies: text(header::COOKIE.as_str()),
        key: text(KEY_HEADER),
    }
}

/// Returns whether a `Host` header names this host. Any port is accepted, as it may be that of a
/// tunnel.
fn is_own(host: &str) -> bool {
    OWN_NAMES.iter().filter_map(|name| host.strip_prefix(name)).any(|port| {
        port.is_empty()
            || port.strip_prefix(':').is_some_and(|digits| digits.parse::<u16>().is_ok())
    })
}

/// Compares two secrets. The time that it takes does not depend on the number of equal bytes.
fn is_same(known: &str, shown: &str) -> bool {
    let differing = known.bytes().zip(shown.bytes()).fold(0, |bits, (a, b)| bits | (a ^ b));
    known.len() == shown.len() && differing == 0
}

/// Returns 256 random bits in hexadecimal.
fn secret() -> io::Result<String> {
    let mut bits = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bits)?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth() -> Auth {
        Auth {
            token: Mutex::new(Some("t".repeat(64))),
            session: "s".repeat(64),
            key: "k".repeat(64),
        }
    }

    #[test]
    fn the_token_works_once() {
        let auth = auth();
        assert!(auth.enter(&"x".repeat(64)).is_none() && auth.enter("").is_none());
        let (cookie, _) = auth.enter(&"t".repeat(64)).expect("the right token");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        assert!(auth.enter(&"t".repeat(64)).is_none() && auth.token().is_empty());
    }

    #[test]
    fn a_wrong_host_origin_session_or_key_is_refused() {
        let auth = auth();
        let (cookies, key) = (format!("a=b; slotd={}", "s".repeat(64)), "k".repeat(64));
        let good = Caller {
            path: "/api/queue",
            host: Some("127.0.0.1:80"),
            origin: Some("http://127.0.0.1:80"),
            site: Some("same-origin"),
            cookies: Some(&cookies),
            key: Some(&key),
        };
        let status = |caller: Caller<'_>| {
            auth.refuses_caller(&caller).map_or(200, |(status, _)| status.as_u16())
        };
        assert_eq!(status(good), 200);
        for host in ["localhost:9000", "[::1]:8080", "127.0.0.1"] {
            assert_eq!(status(Caller { host: Some(host), origin: None, ..good }), 200, "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost:80@evil", "", "127.0.0.1:"]
        {
            assert_eq!(status(Caller { host: Some(host), origin: None, ..good }), 421, "{host}");
        }
        assert_eq!(status(Caller { host: None, ..good }), 421);
        for origin in ["http://evil.example", "https://127.0.0.1:80", "http://127.0.0.1:81", "null"]
        {
            assert_eq!(status(Caller { origin: Some(origin), ..good }), 403, "{origin}");
        }
        assert_eq!(status(Caller { site: Some("cross-site"), ..good }), 403);
        assert_eq!(
            status(Caller { site: Some("same-site"), ..good }),
            403,
            "another port of this host"
        );
        assert_eq!(status(Caller { cookies: None, ..good }), 401);
        assert_eq!(status(Caller { cookies: Some("slotd=s"), ..good }), 401);
        assert_eq!(
            status(Caller { key: None, ..good }),
            403,
            "a cookie that another port received is not enough"
        );
        assert_eq!(status(Caller { key: None, path: "/api/events", ..good }), 403);
        assert_eq!(status(Caller { key: None, path: "/page/app.js", ..good }), 200);
        assert_eq!(
            status(Caller {
                path: "/",
                site: Some("cross-site"),
                origin: None,
                cookies: None,
                ..good
            }),
            200
        );
    }
}
