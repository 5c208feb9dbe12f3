//! A server of etcd, as Debian's `etcd-server` brings it.

use crate::ranks::free_port;
use etcd_client::{Client, GetOptions, PutOptions};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends with this object.
pub struct Server {
    child: Option<Child>,
    folder: tempfile::TempDir,
    ports: [u16; 2],
}

impl Server {
    /// Not started yet.
    pub fn absent() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { child: None, folder, ports: [free_port(), free_port()] }
    }

    /// One that answers.
    pub fn begin() -> Self {
        let mut server = Self::absent();
        server.start();
        server
    }

    /// Starts it, with the data that it had before.
    pub fn start(&mut self) {
        let [client, peer] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(self.folder.path().join("data"));
        command.args(["--name", "only", "--logger", "zap", "--log-outputs", "/dev/null"]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("only={peer}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = command.spawn();
        self.child = Some(started.expect("etcd starts; `cargo xtask test` installs it"));
        let end = Instant::now() + Duration::from_secs(60);
        while self.try_keys("ready").is_none() {
            assert!(Instant::now() < end, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// As when its host loses power.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    /// Its process stops, and its port still takes connections.
    pub fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// It goes on.
    pub fn thaw(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let child = self.child.as_ref().expect("it runs");
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// `HOST:PORT`
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// For UNISONO_RENDEZVOUS.
    pub fn place(&self, prefix: &str) -> String {
        format!("etcd://{}/{prefix}", self.address())
    }

    /// All keys that begin like this.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        self.try_keys(prefix).expect("etcd answers")
    }

    fn try_keys(&self, prefix: &str) -> Option<Vec<String>> {
        self.run(async |mut client: Client| {
            let got = client.get(prefix, Some(GetOptions::new().with_prefix())).await.ok()?;
            let name = |key: &etcd_client::KeyValue| key.key_str().ok().map(str::to_owned);
            got.kvs().iter().map(name).collect()
        })
        .flatten()
    }

    /// Waits until there are so many keys.
    pub fn until(&self, prefix: &str, keys: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.keys(prefix).len() != keys {
            assert!(Instant::now() < end, "{:?}, not {keys}", self.keys(prefix));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Writes a key as a rank would that dies at once.
    pub fn put_for(&self, key: &str, seconds: i64) {
        let put = self.run(async |mut client: Client| {
            let lease = client.lease_grant(seconds, None).await?.id();
            client.put(key, "{}", Some(PutOptions::new().with_lease(lease))).await
        });
        put.expect("etcd answers").expect("the key is written");
    }

    /// Ends all leases, as an operator may.
    pub fn revoke(&self) {
        let done = self.run(async |mut client: Client| {
            for lease in client.leases().await?.leases() {
                client.lease_revoke(lease.id()).await?;
            }
            Ok::<_, etcd_client::Error>(())
        });
        done.expect("etcd answers").expect("leases are ended");
    }

    /// From now on only `root` with a password of eight letters gets in, and `guest`, who has no
    /// rights.
    pub fn lock(&self) {
        let done = self.run(async |mut client: Client| {
            client.user_add("root", "password", None).await?;
            client.user_add("guest", "password", None).await?;
            client.user_grant_role("root", "root").await?;
            client.auth_enable().await
        });
        done.expect("etcd answers").expect("it is locked");
    }

    /// `None` if it does not answer.
    fn run<T>(&self, what: impl AsyncFnOnce(Client) -> T) -> Option<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let work = async {
                let client = Client::connect([self.address()], None).await.ok()?;
                Some(what(client).await)
            };
            tokio::time::timeout(Duration::from_secs(1), work).await.ok().flatten()
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
