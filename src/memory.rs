//! Memory that is needed for a moment only, given back.

use std::fs;

/// What the allocator keeps for work that does not come again.
#[allow(unsafe_code)]
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the allocator's own locks and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What is mapped from files and was needed to start: what is needed again is read again, by itself.
#[allow(unsafe_code)]
pub(crate) fn forget_files() {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for (start, size) in unchanged_files(&maps) {
        // SAFETY: the range is a mapping of a file that nobody can write to and of which no page is other than
        // in the file, so the kernel can read every page of it again; one that is not mapped is refused.
        unsafe {
            libc::madvise(start as *mut libc::c_void, size, libc::MADV_DONTNEED);
        }
    }
}

/// Where files are mapped for reading only, and as they are: the loader changes some before it protects them.
fn unchanged_files(maps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut current = None;
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        match fields.next() {
            Some("Anonymous:") => found.extend(current.take().filter(|_| fields.next() == Some("0"))),
            Some(first) if !first.ends_with(':') => current = read_only_file(line),
            _ => {}
        }
    }
    found
}

fn read_only_file(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_whitespace();
    let (range, rights, file) = (fields.next()?, fields.next()?, fields.nth(3)?);
    if rights.contains('w') || !file.starts_with('/') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let start = number(start)?;
    Some((start, number(end)?.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_as_they_are_on_the_disk_are_forgotten() {
        for (line, anonymous, expected) in [
            ("1000-3000 r-xp 00000000 fe:00 12 /usr/bin/claimfs", 0, vec![(0x1000, 0x2000)]),
            ("1000-3000 r--p 00001000 fe:00 12 /usr/bin/with space", 0, vec![(0x1000, 0x2000)]),
            ("1000-3000 r--p 00001000 fe:00 12 /usr/bin/claimfs", 4, vec![]),
            ("1000-3000 rw-p 00000000 fe:00 12 /usr/bin/claimfs", 0, vec![]),
            ("1000-3000 r-xp 00000000 00:00 0 [vdso]", 0, vec![]),
            ("1000-3000 r--p 00000000 00:00 0", 0, vec![]),
        ] {
            let maps = format!("{line}\nRss:    4 kB\nAnonymous:   {anonymous} kB\nVmFlags: rd\n");
            assert_eq!(unchanged_files(&maps), expected, "{line} {anonymous}");
        }
        forget_files();
        trim();
    }
}
