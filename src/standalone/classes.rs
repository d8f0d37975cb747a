//! The classes of a node without a cluster: a folder of YAML files, and one that needs no file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::{
    api::resource::v1::{CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    device::DriverName,
    objects::{self, Objects},
};

/// Why the classes cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder cannot be read.
    #[error("cannot read the classes in {}: {source}", .path.display())]
    Read {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is wrong.
    #[error(transparent)]
    Objects(#[from] objects::Error),
}

/// The classes of a folder, which need not be there, in the order of its files. A class that is named after the
/// driver has all its devices, unless a file says otherwise.
pub fn read(folder: &Path, driver: &DriverName) -> Result<Vec<DeviceClass>, Error> {
    let error = |source| Error::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    match fs::read_dir(folder) {
        Ok(entries) => {
            for entry in entries {
                files.push(entry.map_err(error)?.path());
            }
        }
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(error(source)),
    }
    let is_one = |file: &PathBuf| {
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let ending = file.extension().and_then(|ending| ending.to_str());
        !is_hidden && matches!(ending, Some("yaml" | "yml" | "json"))
    };
    files.retain(is_one);
    files.sort();
    let mut objects = Objects::default();
    for file in &files {
        objects.read(file)?;
        objects.only_known()?;
    }
    let mut classes = objects.classes;
    if !classes.iter().any(|class| name(class) == driver.as_str()) {
        classes.push(of_driver(driver));
    }
    Ok(classes)
}

/// What a class is called.
pub(super) fn name(class: &DeviceClass) -> &str {
    class.metadata.name.as_deref().unwrap_or_default()
}

fn of_driver(driver: &DriverName) -> DeviceClass {
    let expression = format!("device.driver == \"{driver}\"");
    let selector = DeviceSelector { cel: Some(CELDeviceSelector { expression }) };
    DeviceClass {
        metadata: ObjectMeta { name: Some(driver.to_string()), ..ObjectMeta::default() },
        spec: Some(DeviceClassSpec { selectors: Some(vec![selector]), ..DeviceClassSpec::default() }),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let classes = read(folder, &DriverName::default()).unwrap();
        classes.iter().map(|class| name(class).to_owned()).collect()
    }

    #[test]
    fn there_is_always_one_and_a_file_goes_before_it() {
        let place = TempDir::new().unwrap();
        assert_eq!(names(&place.path().join("absent")), ["claimfs.dev"]);
        let class = |name: &str| {
            format!(
                "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {name}}}\nspec: {{}}\n"
            )
        };
        fs::write(place.path().join("b.yaml"), class("gpu.example.com")).unwrap();
        fs::write(place.path().join("notes"), "not a class").unwrap();
        assert_eq!(names(place.path()), ["gpu.example.com", "claimfs.dev"]);
        fs::write(place.path().join("a.yml"), class("claimfs.dev")).unwrap();
        assert_eq!(names(place.path()), ["claimfs.dev", "gpu.example.com"]);
        fs::write(place.path().join("c.yaml"), "kind: [").unwrap();
        let error = read(place.path(), &DriverName::default()).unwrap_err().to_string();
        assert!(error.contains("c.yaml"), "{error}");
    }
}
