//! What a process may do, given up.

use std::io;

use caps::CapSet;

/// Gives up every capability of this thread and of those that it starts; so it comes before all of them. What
/// is executed by root gets them again, which is how a holder is started.
pub(crate) fn drop_all() -> io::Result<()> {
    // Those that are in effect go with those that are permitted, so they are last.
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Gives up every capability, also of what is executed from now on.
pub(crate) fn drop_for_ever() -> io::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    drop_all()
}
