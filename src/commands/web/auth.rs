//! Who may come in. Any user of this host can connect to a port of loopback, and any page that a
//! browser shows can send requests there: nobody is answered without what only the one who was told
//! the address has.
//!
//! - The token is in the address that is printed. It opens the page once, and is worth nothing
//!   after that.
//! - The session is a cookie, which the browser keeps from scripts and from other sites. It does
//!   not keep it from other ports of this host.
//! - The key is in the page that the token opened, and is kept by the page for its own origin
//!   alone, which the port is part of. Whatever asks or changes anything shows both.
//! - A name that is not this host's own is refused whatever its address is: a foreign site may have
//!   its name lead here.

use super::refused::Refused;
use actix_web::HttpRequest;
use actix_web::http::{StatusCode, header};
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

/// Where the page says its key.
pub const KEY_HEADER: &str = "X-Slotd-Key";

/// Names by which a browser on this host, or at the other end of a tunnel, calls this server.
const OWN_NAMES: [&str; 3] = ["127.0.0.1", "[::1]", "localhost"];

#[derive(Debug)]
pub struct Auth {
    /// `None`: used.
    token: Mutex<Option<String>>,
    session: String,
    key: String,
}

/// What a request shows of itself.
#[derive(Debug, Clone, Copy, Default)]
struct Caller<'a> {
    path: &'a str,
    host: Option<&'a str>,
    origin: Option<&'a str>,
    /// `Sec-Fetch-Site`: how the page that asks is related to this server.
    site: Option<&'a str>,
    cookies: Option<&'a str>,
    key: Option<&'a str>,
}

impl Auth {
    /// # Errors
    /// The kernel gives no random numbers.
    pub fn new() -> io::Result<Auth> {
        Ok(Auth { token: Mutex::new(Some(secret()?)), session: secret()?, key: secret()? })
    }

    /// Empty once it was used.
    pub fn token(&self) -> String {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }

    /// Uses the token up. The cookie and the key of the session.
    pub fn enter(&self, token: &str) -> Option<(String, &str)> {
        let mut kept = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take_if(|known| is_same(known, token))?;
        Some((format!("slotd={}; Path=/; HttpOnly; SameSite=Strict", self.session), &self.key))
    }

    /// Whether the browser has been let in.
    pub fn knows(&self, request: &HttpRequest) -> bool {
        self.has_session(&caller(request))
    }

    fn has_session(&self, caller: &Caller<'_>) -> bool {
        let cookies = caller.cookies.unwrap_or_default().split(';');
        cookies
            .filter_map(|cookie| cookie.trim().strip_prefix("slotd="))
            .any(|shown| is_same(&self.session, shown))
    }

    /// Why a request is not answered.
    pub fn refuses(&self, request: &HttpRequest) -> Option<Refused> {
        let (status, why) = self.refuses_caller(&caller(request))?;
        Some(Refused { status, why: why.to_owned() })
    }

    fn refuses_caller(&self, caller: &Caller<'_>) -> Option<(StatusCode, &'static str)> {
        let Some(host) = caller.host.filter(|host| is_own(host)) else {
            return Some((
                StatusCode::MISDIRECTED_REQUEST,
                "this server has another name: open the address that it printed",
            ));
        };
        let is_page = caller.path == "/";
        let is_foreign = caller.origin.is_some_and(|origin| origin.strip_prefix("http://") != Some(host))
            // An address may be followed from anywhere.
            || (!is_page && caller.site.is_some_and(|site| !["same-origin", "none"].contains(&site)));
        if is_foreign {
            return Some((StatusCode::FORBIDDEN, "requests of other sites are refused"));
        }
        if is_page {
            return None;
        }
        if !self.has_session(caller) {
            return Some((
                StatusCode::UNAUTHORIZED,
                "this browser has no session: start slotd web again",
            ));
        }
        // A browser sends no header of its own for files of the page and for an event stream, which
        // has numbers of jobs and sizes. Everything else needs the key: `/%61pi/submit` is also
        // `/api/submit`.
        let needs_key = !caller.path.starts_with("/page/") && caller.path != "/api/events";
        let has_key = caller.key.is_some_and(|shown| is_same(&self.key, shown));
        (needs_key && !has_key).then_some((
            StatusCode::FORBIDDEN,
            "this page has no key: open the address of slotd web in this tab",
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

/// The port may be that of a tunnel.
fn is_own(host: &str) -> bool {
    OWN_NAMES.iter().filter_map(|name| host.strip_prefix(name)).any(|port| {
        port.is_empty()
            || port.strip_prefix(':').is_some_and(|digits| digits.parse::<u16>().is_ok())
    })
}

/// In a time that does not tell how much of it was right.
fn is_same(known: &str, shown: &str) -> bool {
    let differing = known.bytes().zip(shown.bytes()).fold(0, |bits, (a, b)| bits | (a ^ b));
    known.len() == shown.len() && differing == 0
}

/// 256 random bits in hexadecimal digits.
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
    fn the_token_opens_once() {
        let auth = auth();
        assert!(auth.enter(&"x".repeat(64)).is_none() && auth.enter("").is_none());
        let (cookie, _) = auth.enter(&"t".repeat(64)).expect("the right token");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        assert!(auth.enter(&"t".repeat(64)).is_none() && auth.token().is_empty());
    }

    #[test]
    fn whoever_lacks_anything_is_refused() {
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
            "a cookie that another port was shown is not enough"
        );
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
