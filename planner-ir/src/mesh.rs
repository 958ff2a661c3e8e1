//! Devices and their coordinates.

use std::fmt;

/// A grid of devices with named axes.
///
/// Devices are numbered row-major: the last axis runs fastest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mesh {
    /// The axes, outermost first.
    pub axes: Vec<Axis>,
}

/// An axis of a mesh.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Axis {
    /// Its name in the text form.
    pub name: String,
    /// How many devices there are along it.
    pub size: u64,
}

/// Which axis of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AxisId(pub usize);

/// Why a text is not a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshError {
    /// A part that is not `[name=]size`.
    Part(String),
    /// More axes than the limit; found, limit.
    Axes(usize, usize),
    /// Two axes of one name.
    Name(String),
}

impl fmt::Display for MeshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(part) => {
                write!(f, "mesh axis `{part}` is not a size, expected axes such as `2x4` or `data=2,model=4`")
            }
            Self::Axes(found, limit) => {
                write!(f, "mesh has {found} axes, expected {limit} at most")
            }
            Self::Name(name) => write!(f, "mesh has two axes `{name}`, expected different names"),
        }
    }
}

impl std::error::Error for MeshError {}

impl Mesh {
    /// How many axes a mesh has at most.
    pub const MAX_AXES: usize = 4;

    /// A mesh with axes named `a`, `b`, ... of these sizes.
    pub fn of_sizes(sizes: &[u64]) -> Self {
        let names = ('a'..='z').map(String::from);
        Self { axes: names.zip(sizes).map(|(name, &size)| Axis { name, size }).collect() }
    }

    /// The mesh of a text such as `2x4` (axes named `a`, `b`, ...) or `data=2,model=4`.
    pub fn parse(text: &str) -> Result<Self, MeshError> {
        // The letter x stands between sizes, but also in names.
        let separators: &[char] = if text.contains('=') { &[','] } else { &[',', 'x'] };
        let mut axes: Vec<Axis> = Vec::new();
        for (part, default) in text.split(separators).zip('a'..='z') {
            let (name, size) = part.split_once('=').map_or((None, part), |(name, size)| (Some(name), size));
            let size = size.trim().parse().ok().filter(|&size: &u64| (1..=1 << 20).contains(&size));
            let size = size.ok_or_else(|| MeshError::Part(part.to_owned()))?;
            let name = name.map_or_else(|| default.to_string(), |name| name.trim().to_owned());
            if name.is_empty() || !name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_') {
                return Err(MeshError::Part(part.to_owned()));
            }
            if axes.iter().any(|axis| axis.name == name) {
                return Err(MeshError::Name(name));
            }
            axes.push(Axis { name, size });
        }
        if axes.len() > Self::MAX_AXES {
            return Err(MeshError::Axes(axes.len(), Self::MAX_AXES));
        }
        Ok(Self { axes })
    }

    /// How many devices there are.
    pub fn devices(&self) -> u64 {
        self.axes.iter().map(|axis| axis.size).product()
    }

    /// The sizes of all axes.
    pub fn sizes(&self) -> Vec<u64> {
        self.axes.iter().map(|axis| axis.size).collect()
    }

    /// The size of an axis.
    ///
    /// # Panics
    /// If the mesh lacks the axis.
    pub fn size(&self, axis: AxisId) -> u64 {
        self.axes[axis.0].size
    }

    /// Every axis.
    pub fn axis_ids(&self) -> impl Iterator<Item = AxisId> + use<> {
        (0..self.axes.len()).map(AxisId)
    }

    /// The axis of that name.
    pub fn axis_named(&self, name: &str) -> Option<AxisId> {
        self.axes.iter().position(|axis| axis.name == name).map(AxisId)
    }

    /// The coordinates of a device.
    pub fn coordinates(&self, device: u64) -> Vec<u64> {
        let mut rest = device;
        let mut coordinates = vec![0; self.axes.len()];
        for (coordinate, axis) in coordinates.iter_mut().zip(&self.axes).rev() {
            *coordinate = rest % axis.size;
            rest /= axis.size;
        }
        coordinates
    }

    /// The device at these coordinates.
    pub fn device(&self, coordinates: &[u64]) -> u64 {
        self.axes
            .iter()
            .zip(coordinates)
            .fold(0, |device, (axis, &coordinate)| device * axis.size + coordinate)
    }

    /// The devices that differ from this one in these axes only, itself included, in the order
    /// of their coordinates along the axes as listed (the last fastest).
    pub fn group(&self, device: u64, axes: &[AxisId]) -> Vec<u64> {
        let mut group = vec![self.coordinates(device)];
        for &axis in axes {
            let along = |coordinates: &Vec<u64>| {
                let coordinates = coordinates.clone();
                (0..self.size(axis)).map(move |it| {
                    let mut moved = coordinates.clone();
                    moved[axis.0] = it;
                    moved
                })
            };
            group = group.iter().flat_map(along).collect();
        }
        group.iter().map(|coordinates| self.device(coordinates)).collect()
    }

    /// The [group](Self::group) of every device along these axes, each group once, in the order of their
    /// first devices.
    pub fn groups(&self, axes: &[AxisId]) -> Vec<Vec<u64>> {
        // Groups lie to each other as the first ones of their devices do: by the axes that are left.
        let rest: Vec<AxisId> = self.axis_ids().filter(|it| !axes.contains(it)).collect();
        let first = self.group(0, axes);
        let moved = |by: u64| first.iter().map(|device| device + by).collect();
        self.group(0, &rest).into_iter().map(moved).collect()
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, axis) in self.axes.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{}={}", axis.name, axis.size)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
