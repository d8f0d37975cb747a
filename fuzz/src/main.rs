//! Every text that comes from outside, under a fuzzer that follows the coverage. `hack/fuzz` builds and runs it;
//! `CLAIMFS_FUZZ` names the reader.
//!
//! A reader must not panic, and every input has an end: the fuzzer has a limit of time and of memory for each.
#![no_main]

mod allocation;
mod expressions;
mod files;

use std::{env, process::exit, sync::LazyLock};

use libfuzzer_sys::fuzz_target;

/// What is done with a text.
type Reader = fn(&str);

const READERS: [(&str, Reader); 8] = [
    ("cel", expressions::cel),
    ("quantity", expressions::quantity),
    ("config", files::config),
    ("report", files::report),
    ("journal", files::journal),
    ("claim", files::claim),
    ("metadata", files::metadata),
    ("objects", allocation::objects),
];

static READER: LazyLock<Reader> = LazyLock::new(|| {
    let wanted = env::var("CLAIMFS_FUZZ").unwrap_or_default();
    match READERS.iter().find(|(name, _)| *name == wanted) {
        Some((_, reader)) => *reader,
        None => {
            let names: Vec<&str> = READERS.iter().map(|(name, _)| *name).collect();
            eprintln!("CLAIMFS_FUZZ must be one of {}", names.join(", "));
            exit(2);
        }
    }
});

fuzz_target!(|bytes: &[u8]| {
    // All of them take texts; what is none is refused by whoever reads the file.
    if let Ok(text) = str::from_utf8(bytes) {
        READER(text);
    }
});
