//! HTTP requests and responses, as far as scraping takes.
//!
//! A request is one GET or HEAD. The connection ends with its response, so there is nothing to keep
//! apart from the next one: no body, no chunked encoding, no time between requests.

use std::fmt::Write as _;

/// The maximum length of a request in bytes.
pub(crate) const MAX_REQUEST: usize = 8 << 10;
/// The maximum number of header fields.
const MAX_FIELDS: usize = 64;

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
}

impl Format {
    /// Returns the media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns the format that an `Accept` field prefers. OpenMetrics has to be asked for: whatever else is
    /// accepted, the older format is understood everywhere.
    fn accepted(accept: &str) -> Self {
        let quality = |media: &str| {
            let mut best = 0.0_f32;
            for range in accept.split(',') {
                let mut parts = range.split(';').map(str::trim);
                if !parts
                    .next()
                    .is_some_and(|it| it.eq_ignore_ascii_case(media))
                {
                    continue;
                }
                let given = parts.find_map(|it| it.strip_prefix("q="));
                let given = given.map_or(Some(1.0), |it| it.trim().parse::<f32>().ok());
                best = given.filter(|it| it.is_finite()).unwrap_or(0.0).max(best);
            }
            best
        };
        let open = quality("application/openmetrics-text");
        match open > 0.0 && open >= quality("text/plain") {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }
}

/// A request that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) format: Format,
    /// Whether the response has no body (HEAD).
    pub(crate) head: bool,
}

/// The part of a request that has arrived so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// There is more to come.
    Incomplete,
    Request(Asked),
    /// The request is refused with this status.
    Refused(&'static str),
}

/// Parses what has arrived of a request.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MAX_REQUEST => return Parsed::Incomplete,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Refused("431 Request Header Fields Too Large");
        }
        Err(_) => return Parsed::Refused("400 Bad Request"),
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Parsed::Refused("405 Method Not Allowed"),
    };
    let target = request.path.unwrap_or_default();
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let mut accept = String::new();
    for field in request.headers.iter() {
        if field.name.eq_ignore_ascii_case("accept") {
            let _ = write!(accept, "{},", String::from_utf8_lossy(field.value));
        }
    }
    Parsed::Request(Asked {
        path: path.to_owned(),
        format: Format::accepted(&accept),
        head,
    })
}

/// Returns a response with this status, such as `200 OK`.
pub(crate) fn response(status: &str, media_type: &str, body: &str, head: bool) -> Vec<u8> {
    let mut out = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nConnection: close\r\n",
        body.len()
    );
    if status.starts_with("405") {
        out.push_str("Allow: GET, HEAD\r\n");
    }
    out.push_str("\r\n");
    if !head {
        out.push_str(body);
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: &str) -> Parsed {
        parse(request.replace('\n', "\r\n").as_bytes())
    }

    fn format(accept: &str) -> Format {
        match asked(&format!(
            "GET /metrics HTTP/1.1\nHost: x\nAccept: {accept}\n\n"
        )) {
            Parsed::Request(asked) => asked.format,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn openmetrics_is_sent_to_those_who_prefer_it() {
        // As Prometheus 2.42 asks.
        let prometheus = "application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(format(prometheus), Format::OpenMetrics);
        assert_eq!(format("application/openmetrics-text"), Format::OpenMetrics);
        for other in [
            "*/*",
            "text/plain",
            "text/plain;version=0.0.4;q=0.9, application/openmetrics-text; q=0.5",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x",
            "application/openmetrics-text;q=nan",
        ] {
            assert_eq!(format(other), Format::Prometheus, "{other}");
        }
    }

    #[test]
    fn one_request_is_read_and_the_rest_is_ignored() {
        let Parsed::Request(one) = asked("HEAD /metrics?x=1 HTTP/1.0\n\nGET / HTTP/1.1\n\n") else {
            panic!("it is complete");
        };
        assert_eq!((one.path.as_str(), one.head), ("/metrics", true));
        assert_eq!(one.format, Format::Prometheus);
        assert_eq!(
            asked("GET /metrics HTTP/1.1\nHost: x\n"),
            Parsed::Incomplete
        );
        assert_eq!(asked(""), Parsed::Incomplete);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let status = |request: &str| match asked(request) {
            Parsed::Refused(status) => status[..3].parse::<u32>().unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(status("POST /metrics HTTP/1.1\n\n"), 405);
        assert_eq!(status("\u{16}\u{3}\u{1}garbage\n\n"), 400);
        assert_eq!(status("GET / HTTP/3\n\n"), 400);
        let fields = "A: b\n".repeat(MAX_FIELDS + 1);
        assert_eq!(status(&format!("GET / HTTP/1.1\n{fields}\n")), 431);
        let long = "a".repeat(MAX_REQUEST);
        assert_eq!(status(&format!("GET /{long}")), 431);
    }
}
