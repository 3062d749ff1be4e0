//! Tests with clients that do as they should, and with others.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicUsize;

use super::*;

/// The length of the text at `/long`, more than a socket holds.
const LONG: usize = 16 << 20;

/// An endpoint, and how often it has made an answer.
struct Tested {
    address: SocketAddr,
    answers: Arc<AtomicUsize>,
    _endpoint: Endpoint,
}

fn start(whole: Duration) -> Tested {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let answers = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&answers);
    let answer = move |path: &str, format: Format| {
        counted.fetch_add(1, SeqCst);
        match path {
            "/metrics" => Ok(format!("{format:?}\n")),
            "/long" => Ok("x".repeat(LONG)),
            "/later" => Err(NoAnswer::Unavailable),
            "/broken" => Err(NoAnswer::from(fmt::Error)),
            _ => Err(NoAnswer::NotFound),
        }
    };
    let listeners = vec![Listener::Tcp(listener)];
    Tested {
        address,
        answers,
        _endpoint: Endpoint::with_limits(listeners, answer, whole).unwrap(),
    }
}

impl Tested {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).unwrap();
        stream
    }

    /// Sends a request, and returns the response.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn a_request_is_answered_in_the_format_that_it_asks_for() {
    let tested = start(WHOLE);
    let response = tested.ask(GET);
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"));
    assert!(head.contains("Content-Length: 11\r\nConnection: close"));
    assert_eq!(body, "Prometheus\n");
    let open = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
    let response = tested.ask(open);
    assert!(response.contains("application/openmetrics-text; version=1.0.0"));
    assert!(response.ends_with("OpenMetrics\n"));
    let response = tested.ask("HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(response.contains("Content-Length: 11") && response.ends_with("\r\n\r\n"));
    for (path, status) in [("/", 404), ("/later", 503), ("/broken", 500)] {
        let response = tested.ask(&format!("GET {path} HTTP/1.1\r\n\r\n"));
        let start = format!("HTTP/1.1 {status} ");
        assert!(response.starts_with(&start), "{response}");
    }
}

#[test]
fn a_response_longer_than_a_socket_holds_arrives_whole() {
    let tested = start(WHOLE);
    let response = tested.ask("GET /long HTTP/1.1\r\n\r\n");
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    assert_eq!(body.len(), LONG);
}

#[test]
fn what_is_no_request_is_refused_and_answers_are_not_made_for_it() {
    let tested = start(WHOLE);
    for (request, status) in [
        ("nonsense\r\n\r\n".to_owned(), "400"),
        ("DELETE /metrics HTTP/1.1\r\n\r\n".to_owned(), "405"),
        (format!("GET /{}", "x".repeat(MAX_REQUEST)), "431"),
    ] {
        let response = tested.ask(&request);
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{response}"
        );
    }
    assert_eq!(tested.answers.load(SeqCst), 0);
}

#[test]
fn a_client_that_sends_more_than_its_request_still_gets_its_response() {
    let tested = start(WHOLE);
    let request = format!("{GET}{}", "GET / HTTP/1.1\r\n\r\n".repeat(1000));
    assert!(tested.ask(&request).ends_with("Prometheus\n"));
    assert_eq!(tested.answers.load(SeqCst), 1);
}

#[test]
fn clients_that_stand_still_keep_nobody_out_and_are_closed_in_time() {
    let tested = start(Duration::from_millis(500));
    // More connections than there may be: silent ones, and some that stop in the middle.
    let mut still: Vec<TcpStream> = (0..3 * CONNECTIONS).map(|_| tested.connect()).collect();
    for stream in still.iter_mut().step_by(2) {
        // The oldest ones may be closed already.
        let _ = stream.write_all(b"GET /metr");
    }
    // One that does not read a long response.
    let mut deaf = tested.connect();
    deaf.write_all(b"GET /long HTTP/1.1\r\n\r\n").unwrap();
    for _ in 0..10 {
        assert!(tested.ask(GET).ends_with("Prometheus\n"));
    }
    // All of them are closed: reading ends.
    for mut stream in still {
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    let mut rest = Vec::new();
    let ended = deaf.read_to_end(&mut rest);
    assert!(ended.is_err() || rest.len() < LONG);
}

#[test]
fn a_client_that_sends_a_byte_at_a_time_is_answered_or_closed() {
    let tested = start(WHOLE);
    let mut stream = tested.connect();
    for byte in GET.as_bytes() {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.ends_with("Prometheus\n"));
    // Half of a request, and the end.
    let mut stream = tested.connect();
    stream.write_all(b"GET /metrics HT").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert_eq!(response, "");
}

#[test]
fn a_client_that_never_stops_sending_is_closed() {
    let tested = start(WHOLE);
    let mut stream = tested.connect();
    stream.write_all(GET.as_bytes()).unwrap();
    let more = [b'x'; 4096];
    let mut sent = 0;
    while stream.write_all(&more).is_ok() {
        sent += more.len();
        assert!(sent < 64 << 20, "nobody stops it");
    }
    assert!(tested.ask(GET).ends_with("Prometheus\n"));
}

#[test]
fn requests_arrive_on_a_socket_of_the_file_system_too() {
    let folder = std::env::temp_dir().join(format!("rpcrdma-endpoint-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let answer = |path: &str, _: Format| match path {
        "/metrics" => Ok("here\n".to_owned()),
        _ => Err(NoAnswer::NotFound),
    };
    let endpoint = Endpoint::start(vec![Listener::Unix(listener)], answer).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(GET.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.ends_with("here\n"), "{response}");
    drop(endpoint);
    assert!(
        UnixStream::connect(&path).is_err(),
        "nobody answers any more"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
