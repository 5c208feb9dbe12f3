//! An end that lives in another thread or process and is told over a socket what to do.

use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use unisono_core::wire::frame::Header;
use unisono_driver::{Arrived, HostMemory, HostPtr, Incoming, Link, LinkCaps, LinkError, Outgoing};

/// A call of a method of `Link`; payloads follow it as they are.
#[derive(Serialize, Deserialize)]
enum Ask {
    Caps,
    HasRoom(usize),
    Send { channel: usize, header: Header, bytes: Option<usize>, token: u32 },
    PollSent(usize),
    PollFrame(usize),
    Take(usize),
    Receive { channel: usize, keep: bool },
    Withdraw(usize),
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Caps { inline_max: usize, channels: usize },
    Bool(bool),
    Sent(Result<(), bool>),
    Token(Option<u32>),
    Frame(Result<Option<(Header, bool)>, bool>),
    Received(Result<Option<usize>, bool>),
}

/// Errors travel as "was it garbage?".
const fn coded(error: LinkError) -> bool {
    matches!(error, LinkError::Garbage)
}

const fn decoded(garbage: bool) -> LinkError {
    if garbage { LinkError::Garbage } else { LinkError::Closed }
}

fn put<T: Serialize>(stream: &mut UnixStream, message: &T, payload: &[u8]) -> std::io::Result<()> {
    let mut room = [0; 512];
    let bytes = postcard::to_slice(message, &mut room).expect("small");
    let mut all = vec![bytes.len() as u8, (bytes.len() >> 8) as u8];
    all.extend_from_slice(bytes);
    all.extend_from_slice(payload);
    stream.write_all(&all)
}

fn get<T: for<'a> Deserialize<'a>>(stream: &mut UnixStream) -> std::io::Result<T> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut bytes = vec![0; u16::from_le_bytes(len).into()];
    stream.read_exact(&mut bytes)?;
    Ok(postcard::from_bytes(&bytes).expect("the other end speaks the same"))
}

/// Does what it is told until nobody is left to tell it.
pub fn serve<L: Link<Mem = HostPtr>>(mut stream: UnixStream, mut link: L) {
    while let Ok(ask) = get::<Ask>(&mut stream) {
        let mut payload = Vec::new();
        let answer = match ask {
            Ask::Caps => {
                let LinkCaps { inline_max, channels, .. } = link.caps();
                Answer::Caps { inline_max, channels }
            }
            Ask::HasRoom(channel) => Answer::Bool(link.has_room(channel)),
            Ask::Send { channel, header, bytes, token } => {
                let mut sent = vec![0; bytes.unwrap_or(0)];
                stream.read_exact(&mut sent).expect("the payload follows");
                let mem = HostPtr::new(sent.as_mut_ptr());
                let out = match bytes {
                    Some(bytes) => Outgoing::At { mem, bytes, window: None },
                    None => Outgoing::None,
                };
                // SAFETY: this link copies a payload when it is sent.
                Answer::Sent(unsafe { link.send(channel, &header, out, token) }.map_err(coded))
            }
            Ask::PollSent(channel) => Answer::Token(link.poll_sent(channel)),
            Ask::PollFrame(channel) => {
                let frame = link.poll_frame(channel).map_err(coded);
                let flat = |f: Incoming<HostPtr>| (f.header, !matches!(f.payload, Arrived::None));
                Answer::Frame(frame.map(|f| f.map(flat)))
            }
            Ask::Take(channel) => {
                link.take(channel);
                Answer::Bool(true)
            }
            Ask::Receive { channel, keep } => {
                let frame = link.poll_frame(channel).ok().flatten();
                payload = vec![0; frame.map_or(0, |f| f.header.payload_len() as usize)];
                let into = keep.then(|| HostPtr::new(payload.as_mut_ptr()));
                // SAFETY: as long as the frame's payload.
                let received = unsafe { link.receive(channel, into) };
                Answer::Received(received.map(|all| all.then_some(payload.len())).map_err(coded))
            }
            Ask::Withdraw(channel) => Answer::Bool(link.withdraw(channel)),
        };
        if put(&mut stream, &answer, &payload).is_err() {
            return;
        }
    }
}

/// A short exchange between two ends of this process.
pub fn serve_here<L: Link<Mem = HostPtr>>(a: L, b: L) {
    struct Once<L>(Option<(L, L)>);
    impl<L: Link<Mem = HostPtr>> unisono_testkit::link::LinkHarness for Once<L> {
        type Link = L;

        fn pair(&mut self) -> (L, L) {
            self.0.take().expect("one exchange")
        }

        fn turn(&mut self, _: &mut [&mut L]) {}
    }
    unisono_testkit::link::a_random_exchange(&mut Once(Some((a, b))));
}

/// The handle of a served end.
pub struct Remote {
    stream: RefCell<UnixStream>,
}

impl Remote {
    pub fn new(stream: UnixStream) -> Self {
        Self { stream: RefCell::new(stream) }
    }

    fn ask(&self, ask: &Ask, payload: &[u8]) -> Answer {
        let stream = &mut self.stream.borrow_mut();
        put(stream, ask, payload).expect("the other end listens");
        get(stream).expect("the other end answers")
    }

    fn is(&self, ask: &Ask) -> bool {
        matches!(self.ask(ask, &[]), Answer::Bool(true))
    }
}

impl Link for Remote {
    type Mem = HostPtr;

    fn caps(&self) -> LinkCaps {
        let Answer::Caps { inline_max, channels } = self.ask(&Ask::Caps, &[]) else {
            panic!("asked for something else")
        };
        LinkCaps { spans: false, puts: false, inline_max, channels }
    }

    fn has_room(&mut self, channel: usize) -> bool {
        self.is(&Ask::HasRoom(channel))
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<HostPtr>,
        token: u32,
    ) -> Result<(), LinkError> {
        let (bytes, content) = match payload {
            Outgoing::At { mem, bytes, .. } => {
                // SAFETY: the caller's promise.
                (Some(bytes), unsafe { std::slice::from_raw_parts(mem.as_ptr(), bytes) })
            }
            _ => (None, &[][..]),
        };
        match self.ask(&Ask::Send { channel, header: *header, bytes, token }, content) {
            Answer::Sent(sent) => sent.map_err(decoded),
            _ => panic!("asked for something else"),
        }
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        match self.ask(&Ask::PollSent(channel), &[]) {
            Answer::Token(token) => token,
            _ => panic!("asked for something else"),
        }
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<HostPtr>>, LinkError> {
        let Answer::Frame(frame) = self.ask(&Ask::PollFrame(channel), &[]) else {
            panic!("asked for something else")
        };
        let frame = frame.map_err(decoded)?;
        Ok(frame.map(|(header, stream)| Incoming {
            header,
            payload: if stream { Arrived::Stream } else { Arrived::None },
        }))
    }

    fn take(&mut self, channel: usize) {
        self.ask(&Ask::Take(channel), &[]);
    }

    unsafe fn receive(&mut self, channel: usize, into: Option<HostPtr>) -> Result<bool, LinkError> {
        let ask = Ask::Receive { channel, keep: into.is_some() };
        let Answer::Received(received) = self.ask(&ask, &[]) else {
            panic!("asked for something else")
        };
        let Some(bytes) = received.map_err(decoded)? else { return Ok(false) };
        let mut content = vec![0; bytes];
        self.stream.borrow_mut().read_exact(&mut content).expect("the payload follows");
        if let Some(into) = into {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), into.as_ptr(), bytes) };
        }
        Ok(true)
    }

    fn enter(&mut self, _: usize, _: u32) -> bool {
        panic!("a remote end has no spans")
    }

    fn exit(&mut self, _: usize, _: u32, _: bool) {}

    fn release(&mut self, _: usize, _: u32) {}

    fn withdraw(&mut self, channel: usize) -> bool {
        self.is(&Ask::Withdraw(channel))
    }
}
