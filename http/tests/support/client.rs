//! A small HTTP/1.1 client and a served listener.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use queen_http::{HttpConfig, serve};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Door, Local};

/// A listener over a [`Local`] broker.
pub struct Served {
    pub broker: Arc<Local>,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

/// An answer as it came.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Served {
    pub async fn start() -> Served {
        Served::with(HttpConfig::default()).await
    }

    pub async fn with(config: HttpConfig) -> Served {
        let broker = Local::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let door = Arc::new(Door(broker.clone()));
        let task = tokio::spawn(serve(listener, door, config, async move {
            let _ = stopped.await;
        }));
        Served {
            broker,
            address,
            stop: Some(stop),
            task,
        }
    }

    /// Stops the listener and waits for it.
    pub async fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        (&mut self.task).await.unwrap().unwrap();
    }

    /// Sends a request on a connection of its own.
    pub async fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Answer {
        let socket = TcpStream::connect(self.address).await.unwrap();
        let mut socket = Connection {
            socket,
            rest: Vec::new(),
        };
        socket.send(method, path, kind, body).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", b"").await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", b"").await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(
            "POST",
            path,
            "application/json",
            body.to_string().as_bytes(),
        )
        .await
    }

    pub async fn push(&self, queue: &str, lane: &str, payload: Value, txn: &str) -> Value {
        let item = serde_json::json!({"queue": queue, "partition": lane, "payload": payload,
            "transactionId": txn});
        let answer = self
            .post("/api/v1/push", serde_json::json!({"items": [item]}))
            .await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()[0].clone()
    }
}

/// One connection, kept alive.
pub struct Connection {
    pub socket: TcpStream,
    rest: Vec<u8>,
}

impl Connection {
    pub async fn open(served: &Served) -> Connection {
        let socket = TcpStream::connect(served.address).await.unwrap();
        Connection {
            socket,
            rest: Vec::new(),
        }
    }

    pub async fn write(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: any\r\n");
        if !kind.is_empty() {
            head.push_str(&format!("Content-Type: {kind}\r\n"));
        }
        if !body.is_empty() || method == "POST" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        self.socket.write_all(head.as_bytes()).await.unwrap();
        self.socket.write_all(body).await.unwrap();
    }

    pub async fn read(&mut self) -> Answer {
        let reading = self.read_answer();
        tokio::time::timeout(Duration::from_secs(20), reading)
            .await
            .expect("an answer in time")
    }

    pub async fn send(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) -> Answer {
        self.write(method, path, kind, body).await;
        self.read().await
    }

    async fn more(&mut self) {
        let mut chunk = vec![0; 65_536];
        let read = self.socket.read(&mut chunk).await.unwrap();
        assert!(
            read > 0,
            "the connection was closed: {:?}",
            String::from_utf8_lossy(&self.rest)
        );
        self.rest.extend_from_slice(&chunk[..read]);
    }

    async fn read_answer(&mut self) -> Answer {
        let end = loop {
            if let Some(end) = self
                .rest
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            {
                break end;
            }
            self.more().await;
        };
        let head = String::from_utf8(self.rest[..end].to_vec()).unwrap();
        self.rest.drain(..end + 4);
        let mut lines = head.lines();
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers: HashMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let len: usize = headers
            .get("content-length")
            .map_or(0, |len| len.parse().unwrap());
        while self.rest.len() < len {
            self.more().await;
        }
        let body = self.rest.drain(..len).collect();
        Answer {
            status,
            headers,
            body,
        }
    }
}
