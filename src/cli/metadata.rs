//! `claimfs metadata`: what a container reads about its devices.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Error, output};
use crate::reader::{self, Metadata as Document, Watch};

/// Read the metadata of devices, as a workload does
///
/// In a container: what it was given. On a node: what all containers were given; a claim is NAMESPACE/CLAIM
/// there.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 read, 1 not possible, 2 wrong usage.")]
pub(super) struct Metadata {
    /// Only this claim, by its name or by that in the pod
    claim: Option<String>,

    /// Only this request of the claim
    request: Option<String>,

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,

    /// Print every newer version, too
    #[arg(short, long)]
    watch: bool,

    /// Where metadata are
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_MOUNT_POINT", default_value = reader::PLACE)]
    place: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

impl Metadata {
    pub(super) fn run(self) -> Result<(), Error> {
        let paths = match &self.claim {
            Some(claim) => reader::of_claim(&self.place, claim, self.request.as_deref())?,
            None => reader::find(&self.place)?,
        };
        let (mut watch, documents) = Watch::new(paths)?;
        let mut reader = self.show(&documents)?;
        while self.watch && !documents.is_empty() && reader != output::Reader::Gone {
            reader = self.show(&[watch.wait()?])?;
        }
        Ok(())
    }

    fn show(&self, documents: &[Document]) -> Result<output::Reader, Error> {
        output::print(&match self.output {
            Format::Table => table(documents),
            Format::Json => documents.iter().map(|document| output::json(document) + "\n").collect(),
            Format::Yaml => {
                documents.iter().map(|document| format!("---\n{}", output::yaml(document))).collect()
            }
        })
    }
}

fn table(documents: &[Document]) -> String {
    if documents.is_empty() {
        return String::from("no metadata: no claim is prepared, or this container uses none\n");
    }
    let devices = documents.iter().flat_map(|document| {
        let requests = document.requests.iter();
        requests
            .flat_map(move |request| request.devices.iter().map(move |device| (document, request, device)))
    });
    let rows = devices.map(|(document, request, device)| {
        let attributes: Vec<String> =
            device.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        vec![
            format!("{}/{}", document.metadata.namespace, document.metadata.name),
            document.metadata.generation.to_string(),
            request.name.clone(),
            device.name.clone(),
            device.driver.clone(),
            attributes.join(" "),
        ]
    });
    output::table(&["CLAIM", "GENERATION", "REQUEST", "DEVICE", "DRIVER", "ATTRIBUTES"], rows)
}
