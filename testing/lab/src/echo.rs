//! A TCP echo service, with which the `smoke` lane tests the connections between guest and host.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::error::Error;

/// The time-out of either side.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum length of a line, bytes.
const LONGEST: u64 = 4096;

/// Answers one line per connection with the same line, until killed.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve(address: &str) -> Result<(), Error> {
    let listener = TcpListener::bind(address).map_err(Error::system("listening"))?;
    for connection in listener.incoming().flatten() {
        // A failure ends only this connection.
        let _ = echo(&connection);
    }
    Ok(())
}

fn echo(mut connection: &TcpStream) -> std::io::Result<()> {
    let line = line(connection)?;
    connection.write_all(line.as_bytes())
}

/// Sends a line and returns the answer.
///
/// # Errors
/// There is no connection, or no answer in time.
pub fn ask(address: &str, text: &str) -> Result<String, Error> {
    let ask = || {
        let mut connection = TcpStream::connect(address)?;
        connection.write_all(format!("{text}\n").as_bytes())?;
        line(&connection)
    };
    let answer: String = ask().map_err(Error::system("asking"))?;
    Ok(answer.trim_end().to_owned())
}

fn line(connection: &TcpStream) -> std::io::Result<String> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(connection.take(LONGEST)).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || echo(&listener.accept().unwrap().0).unwrap());
        assert_eq!(ask(&address, "there and back").unwrap(), "there and back");
        server.join().unwrap();
    }
}
