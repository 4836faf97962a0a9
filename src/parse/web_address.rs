//! The URL that events are posted to. Everything but the host may be secret and is never printed.

use std::fmt;

/// A URL that begins with `http://` or `https://` and names a host.
#[derive(Clone, PartialEq, Eq)]
pub struct WebAddress(String);

impl WebAddress {
    /// Parses a URL. Returns `None` if it is invalid.
    pub fn parse(text: &str) -> Option<WebAddress> {
        let is_plain = text.chars().all(|c| c.is_ascii_graphic());
        let address = WebAddress(text.to_owned());
        (is_plain && has_sound_port(address.host()?)).then_some(address)
    }

    /// Returns the whole URL, secrets included.
    pub fn whole(&self) -> &str {
        &self.0
    }

    fn scheme(&self) -> Option<(&str, &str)> {
        self.0.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))
    }

    /// Returns the host with its port.
    fn host(&self) -> Option<&str> {
        let (_, rest) = self.scheme()?;
        let authority = rest.split(['/', '?', '#']).next()?;
        authority.rsplit('@').next()
    }
}

/// Returns whether a host is named and its port, if any, is valid. A colon within brackets belongs
/// to an IPv6 address.
fn has_sound_port(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((name, port)) = rest.split_once(']') else { return false };
            (name, if port.is_empty() { None } else { port.strip_prefix(':').or(Some("none")) })
        }
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    // An empty port means the default of the scheme (RFC 3986, 3.2.3).
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok_and(|port| port > 0);
    !name.is_empty() && port.is_none_or(is_port)
}

/// Omits the user name, password, path and query.
impl fmt::Display for WebAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, _) = self.scheme().unwrap_or_default();
        let host = self.host().unwrap_or_default();
        let is_all = self.0.len() <= scheme.len() + "://".len() + host.len() + 1;
        write!(f, "{scheme}://{host}/{}", if is_all { "" } else { "…" })
    }
}

impl fmt::Debug for WebAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_is_shown() {
        for (text, shown) in [
            ("http://localhost:8080", "http://localhost:8080/"),
            ("http://localhost:8080/", "http://localhost:8080/"),
            ("https://hooks.example.org/services/T0/B1/secret", "https://hooks.example.org/…"),
            ("https://me:pass@example.org?token=x", "https://example.org/…"),
            ("https://[::1]:9/x#y", "https://[::1]:9/…"),
        ] {
            let address = WebAddress::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((address.to_string().as_str(), address.whole()), (shown, text));
            assert_eq!(format!("{address:?}"), shown);
        }
        for text in [
            "",
            "example.org",
            "ftp://x/",
            "http://",
            "https:///path",
            "http://a b/",
            "http://x\r\n",
            "https://me@",
            "http://a:99999/",
            "http://a:0/",
            "http://a:b/",
            "http://:80/",
            "http://[::1",
            "http://[::1]x/",
            "http://[]/",
        ] {
            assert_eq!(WebAddress::parse(text), None, "{text:?}");
        }
    }
}
