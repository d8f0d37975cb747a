//! What is said to a holder, and how: one message a packet, with at most one descriptor.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use nix::{
    cmsg_space,
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::Error;
use crate::{
    device::{ClaimUid, DriverName, RequestName},
    fs::VersionName,
};

/// A list of all anchors of a large node fits.
const MAX_BYTES: usize = 128 * 1024;

/// What a server can ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Give me the connection that you keep; I serve it from now on.
    Take,
    /// Mount afresh and give me the connection; I serve it from now on.
    Mount,
    /// Keep this connection, which came with this greeting. I serve it.
    Keep {
        /// What the kernel said first.
        greeting: Vec<u8>,
    },
    /// Let containers mount the file of a request.
    #[serde(rename_all = "camelCase")]
    Anchor {
        /// The claim.
        claim: ClaimUid,
        /// The request.
        request: RequestName,
        /// Whose file it is.
        driver: DriverName,
        /// Which file it is, for its versions.
        inode: u64,
    },
    /// Let those who read without a server see the plain files of the tree.
    Expose,
    /// Let containers mount a version that is kept as a plain file, in the place of the one before.
    #[serde(rename_all = "camelCase")]
    Swap {
        /// The claim.
        claim: ClaimUid,
        /// The request.
        request: RequestName,
        /// Which file it is.
        inode: u64,
        /// Which version of it.
        version: VersionName,
    },
    /// Containers do not need the files of these claims any more.
    #[serde(rename_all = "camelCase")]
    Drop {
        /// The claims.
        claims: Vec<ClaimUid>,
    },
    /// Which claims have anchors?
    List,
    /// Who was not reached when a file system was mounted in the place of another?
    Unhealed,
    /// Which of these claims does a container use?
    #[serde(rename_all = "camelCase")]
    Used {
        /// The claims.
        claims: Vec<ClaimUid>,
    },
    /// Nobody is left who would start a container of these claims: end those that were made and are not started.
    #[serde(rename_all = "camelCase")]
    EndUnstarted {
        /// The claims.
        claims: Vec<ClaimUid>,
    },
    /// What are those called that keep a run of `claimfs run` open?
    #[serde(rename_all = "camelCase")]
    Keepers {
        /// What its FIFO is called.
        run: ClaimUid,
    },
    /// Nothing is needed any more: take away what is mounted, and end.
    End,
}

/// What the holder says to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Answer {
    /// It is done; a connection may come along.
    Done,
    /// Here is the connection, which came with this greeting.
    Taken {
        /// What the kernel said first.
        greeting: Vec<u8>,
    },
    /// There is no connection.
    Nothing,
    /// These claims.
    Claims(Vec<ClaimUid>),
    /// These were not reached.
    Unhealed(Vec<String>),
    /// These processes.
    Keepers(Vec<String>),
    /// It cannot be done.
    Refused(String),
}

/// Sends one message.
pub(super) fn send<M: Serialize>(
    socket: BorrowedFd<'_>,
    message: &M,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let descriptors: Vec<i32> = descriptor.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Receives one message; none when the other side has gone.
pub(super) fn receive<M: DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> Result<Option<(M, Option<OwnedFd>)>, Error> {
    let unreadable = |error: &dyn std::fmt::Display| Error::Message(error.to_string());
    let mut bytes = vec![0; MAX_BYTES];
    let mut control = cmsg_space!([i32; 1]);
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut control), flags)
        .map_err(|errno| unreadable(&errno.desc()))?;
    let mut descriptor = None;
    for part in message.cmsgs().map_err(|errno| unreadable(&errno.desc()))? {
        if let ControlMessageOwned::ScmRights(received) = part {
            descriptor = received.into_iter().next().map(own);
        }
    }
    let (size, is_cut) =
        (message.bytes, message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC));
    if is_cut {
        return Err(Error::Message(String::from("it is too long")));
    }
    if size == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&bytes[..size]).map_err(|error| unreadable(&error))?;
    Ok(Some((message, descriptor)))
}

#[allow(unsafe_code)]
fn own(descriptor: i32) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the kernel has just made it for us, and nobody else knows its number.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    #[test]
    fn messages_and_descriptors_arrive() {
        let (one, other) = pair();
        let request = Request::Keep { greeting: vec![1, 2, 3] };
        send(one.as_fd(), &request, Some(one.as_fd())).unwrap();
        send(one.as_fd(), &Request::Take, None).unwrap();
        let (received, descriptor) = receive::<Request>(other.as_fd()).unwrap().unwrap();
        assert!(received == request && descriptor.is_some());
        let (received, descriptor) = receive::<Request>(other.as_fd()).unwrap().unwrap();
        assert!(received == Request::Take && descriptor.is_none());
        drop((one, descriptor));
    }

    #[test]
    fn hostile_messages_are_refused() {
        for text in [
            "{}",
            "nonsense",
            r#"{"anchor": {"claim": "../../etc", "request": "r", "driver": "d.e", "inode": 1}}"#,
            r#"{"anchor": {"claim": "u1", "request": "a/b", "driver": "d.e", "inode": 1}}"#,
            r#"{"anchor": {"claim": "u1", "request": "a", "driver": "../e", "inode": 1}}"#,
            r#"{"drop": {"claims": ["u1"], "path": "/etc"}}"#,
            r#"{"drop": {"claims": [""]}}"#,
            r#"{"swap": {"claim": "u1", "request": "r", "inode": 1, "version": "../1"}}"#,
            r#"{"shell": "rm"}"#,
        ] {
            let (one, other) = pair();
            nix::unistd::write(&one, text.as_bytes()).unwrap();
            assert!(receive::<Request>(other.as_fd()).is_err(), "{text}");
        }
    }
}
