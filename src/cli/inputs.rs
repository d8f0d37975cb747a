//! What `claimfs allocate` and `claimfs explain` are asked about: objects from files, from this machine and from a
//! cluster.

use std::{env, io, path::PathBuf};

use clap::{Args, ValueEnum};
use kube::Client;

use super::{Error, node_name, output};
use crate::{
    allocate::{Features, Release},
    claims::{Folder, FolderError},
    cluster,
    config::{self, Config},
    device::NodeName,
    discover::{self, Roots},
    objects::Objects,
    publish,
    question::{Choice, Question},
    standalone::classes,
};

/// Where everything comes from.
#[derive(Debug, Args)]
pub(super) struct Inputs {
    /// Claims, templates, classes, slices, nodes and taint rules: YAML or JSON, as kubectl prints it; - is standard
    /// input. Can be given several times
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Only these claims of the files or of the cluster, as [NAMESPACE/]NAME; else all that are not allocated
    #[arg(long = "claim", value_name = "CLAIM")]
    claims: Vec<String>,

    /// Where devices come from; those in files when there are any, else those of the cluster when a kubeconfig is
    /// given, else those of this machine
    #[arg(long, value_enum, value_name = "WHERE")]
    devices: Option<Devices>,

    /// The cluster; $KUBECONFIG or ~/.kube/config when a cluster is needed and none is named
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Only this node; else all nodes that are known, in the order of their names
    #[arg(long, value_name = "NAME")]
    node: Option<NodeName>,

    /// As this release of Kubernetes decides
    #[arg(long, value_enum, value_name = "RELEASE", default_value_t = Kubernetes::V1_37)]
    kubernetes: Kubernetes,

    /// Feature gates of the scheduler that differ from their defaults, e.g. DRAListTypeAttributes=true
    #[arg(long = "feature-gates", value_name = "GATE=BOOL", value_delimiter = ',')]
    gates: Vec<Gate>,

    /// The configuration, for the devices of this machine
    #[arg(long, value_name = "FILE", env = "CLAIMFS_CONFIG", default_value = config::DEFAULT_PATH)]
    config: PathBuf,

    /// The claims and classes of this machine, for its devices
    #[arg(
        long,
        value_name = "FOLDER",
        env = "CLAIMFS_OBJECTS_DIR",
        default_value = "/var/lib/claimfs/objects"
    )]
    objects_dir: PathBuf,

    /// Where the host's /dev is seen
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_DEV", default_value = "/dev")]
    dev: PathBuf,

    /// Where the host's /sys is seen
    #[arg(long, value_name = "FOLDER", env = "CLAIMFS_SYSFS", default_value = "/sys")]
    sysfs: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Devices {
    /// In the files
    Files,
    /// On this machine, as the configuration finds them
    Machine,
    /// In the cluster
    Cluster,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kubernetes {
    /// 1.36
    #[value(name = "1.36")]
    V1_36,
    /// 1.37
    #[value(name = "1.37")]
    V1_37,
}

impl From<Kubernetes> for Release {
    fn from(release: Kubernetes) -> Self {
        match release {
            Kubernetes::V1_36 => Self::V1_36,
            Kubernetes::V1_37 => Self::V1_37,
        }
    }
}

/// A feature gate and whether it is on.
#[derive(Debug, Clone)]
struct Gate {
    name: String,
    is_on: bool,
}

impl std::str::FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("a gate is written GATE=true or GATE=false")?;
        let is_on = value.parse().map_err(|_| format!("{value:?} is neither true nor false"))?;
        if Features::default().gate(name).is_none() {
            let known = Features::GATES.join(", ");
            return Err(format!("{name:?} is no gate that the allocator looks at; these are: {known}"));
        }
        Ok(Self { name: name.to_owned(), is_on })
    }
}

/// What of a cluster is asked about, besides what the options say.
pub(super) enum Subject {
    /// Nothing.
    Files,
    /// A claim.
    Claim(String),
    /// The claims of a pod, as namespace and name.
    Pod { namespace: String, name: String },
}

impl Inputs {
    /// Gathers everything.
    pub(super) fn question(&self, subject: Subject) -> Result<Question, Error> {
        let mut asked = Objects::default();
        self.files.iter().try_for_each(|file| asked.read(file))?;
        // A cluster may be newer than we are.
        for field in asked.unknown.drain(..) {
            output::complain(format_args!("warning: {field}"));
        }
        let is_about_cluster = !matches!(subject, Subject::Files);
        let devices = self.devices.unwrap_or(match () {
            () if !asked.slices.is_empty() => Devices::Files,
            () if is_about_cluster || self.kubeconfig.is_some() => Devices::Cluster,
            () => Devices::Machine,
        });
        let mut choice = Choice {
            claims: self.claims.clone(),
            node: self.node.as_ref().map(ToString::to_string),
            release: self.kubernetes.into(),
            features: self.features(),
            reserved: Vec::new(),
        };
        let mut known = Objects::default();
        if is_about_cluster || devices == Devices::Cluster {
            known = self.ask_cluster(subject, &mut choice)?;
            if devices != Devices::Cluster {
                known.slices.clear();
            }
        }
        if devices == Devices::Machine {
            self.machine(&mut choice, &mut known)?;
        }
        Ok(Question::new(asked, known, choice)?)
    }

    fn features(&self) -> Features {
        let mut features = Features::default_of(self.kubernetes.into());
        for gate in &self.gates {
            if let Some(feature) = features.gate_mut(&gate.name) {
                *feature = gate.is_on;
            }
        }
        features
    }

    /// The slices that this machine would publish, and its own claims and classes.
    fn machine(&self, choice: &mut Choice, known: &mut Objects) -> Result<(), Error> {
        let config = Config::load(&self.config)?;
        known.classes = classes::read(&self.objects_dir.join("classes"), &config.driver)?;
        let files = match Folder::files(&self.objects_dir.join("claims")) {
            // Where there are none, none has a device.
            Err(FolderError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Vec::new(),
            files => files?,
        };
        files.iter().try_for_each(|file| known.read(file))?;
        let roots = Roots { dev: self.dev.clone(), sys: self.sysfs.clone() };
        discover::check(&config, &roots)?;
        let node = node_name(self.node.as_ref())?;
        let found = discover::scan(&config, &roots);
        for notice in &found.notices {
            output::complain(format_args!("warning: {notice}"));
        }
        choice.node = Some(node.to_string());
        known.slices = publish::named_slices(&config.driver, &node, &found.devices);
        Ok(())
    }

    fn ask_cluster(&self, subject: Subject, choice: &mut Choice) -> Result<Objects, Error> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
        runtime.block_on(async {
            let client = self.client().await?;
            match subject {
                Subject::Files => {}
                Subject::Claim(name) => choice.claims.push(name),
                Subject::Pod { namespace, name } => {
                    let (claims, node) = crate::objects::claims_of_pod(&client, &namespace, &name).await?;
                    if claims.is_empty() {
                        return Err(Error::NoClaims { pod: format!("{namespace}/{name}") });
                    }
                    choice.claims.extend(claims);
                    choice.node = choice.node.take().or(node);
                }
            }
            Ok(Objects::of_cluster(&client).await?)
        })
    }

    async fn client(&self) -> Result<Client, Error> {
        let usual = || {
            let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
            env::var_os("KUBECONFIG").map(PathBuf::from).or(home).filter(|path| path.exists())
        };
        let path = self.kubeconfig.clone().or_else(usual);
        Ok(cluster::connect(cluster::config(path.as_deref()).await?)?)
    }
}
