//! Two ends of a connection over the iwarp device.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rpcrdma_conform::stream::Gone;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn device() -> ConformDevice {
    ConformDevice::open(DeviceChoice::default(), LinkOptions::default()).unwrap()
}

/// Returns the ends of a connection: that of a client, and that of a server.
fn pair() -> [Box<dyn Endpoint>; 2] {
    let listening = device().listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listening.address;
    let client = std::thread::spawn(move || {
        let opened = device().connect(&Wanted {
            address,
            private: &[],
            patience: PATIENCE,
            watcher: None,
        });
        opened.unwrap().0
    });
    let until = Instant::now() + PATIENCE;
    let request = loop {
        if let Some(request) = listening.request().unwrap() {
            break request;
        }
        assert!(Instant::now() < until, "no request came");
        std::thread::sleep(Duration::from_millis(1));
    };
    let accepted = request.accept(&Answer {
        private: &[],
        stop: Arc::new(AtomicBool::new(false)),
        watcher: None,
    });
    let server = accepted.unwrap().0;
    [client.join().unwrap(), server]
}

#[test]
fn a_connection_that_was_idle_is_closed_in_order() {
    let [client, mut server] = pair();
    // Longer than an orderly end may take, so that the time of the last event is no measure for it.
    std::thread::sleep(Duration::from_millis(2500));
    drop(client);
    let end = server.hear(&mut || true);
    assert!(matches!(end, Err(Gone::Closed)), "{end:?}");
}
