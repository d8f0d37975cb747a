//! What a process may do: given up, or taken as far as it is allowed.

use std::io;

use caps::CapSet;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Gives up every capability of this thread and of those that it starts; so it comes before all of them. What
/// is executed by root gets them again, which is how a holder is started.
pub(crate) fn drop_all() -> io::Result<()> {
    // Those that are in effect go with those that are permitted, so they are last.
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Allows as many open files as there may be: everybody who waits for devices has two of them here.
pub(crate) fn open_as_many_as_allowed() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

/// Gives up every capability, also of what is executed from now on.
pub(crate) fn drop_for_ever() -> io::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    drop_all()
}
