//! Sessions of programs, and ranks on GPUs: what commands do for `--device cuda`.
//!
//! Without a launcher all ranks are on the first GPU of this machine. Under one, each is a process with a
//! GPU of its own.

use std::env;
use std::path::PathBuf;
use std::rc::Rc;

use device::{Device, Settings};
use files::Failure;
use lower::Program;
use run::{RunError, Session};

use crate::arguments::{CudaArguments, DeviceArguments, RunDevice};
use crate::cluster::Cluster;
use crate::listener::Listener;

/// What a folder of the user's cache is called.
const FOLDER: &str = "shardloom";

/// What a device is made with, as arguments say.
pub fn settings(cuda: &CudaArguments) -> Settings {
    Settings {
        libraries: cuda.libraries.iter().cloned().collect(),
        cache: cuda.cache.clone().or_else(own_cache),
        ..Settings::default()
    }
}

/// The user's cache, as the XDG Base Directory Specification has it; none where there is no home.
pub fn own_cache() -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join(FOLDER))
}

/// Refuses to start on a GPU where there is none, before anything else is done; one line says
/// everything that is missing.
pub fn expect(on: &DeviceArguments, cluster: Option<&Cluster>) -> Result<(), Failure> {
    const HINT: &str = "`shardloom kernels plan.json` lists what a plan would launch";
    if on.device == RunDevice::Cpu {
        return Ok(());
    }
    let folders = settings(&on.cuda).libraries;
    let launched = || {
        let count = device::count(&folders).unwrap_or(0);
        cluster.and_then(|it| of_process(it, count, &folders).err())
    };
    let why = lacking(&on.cuda).or_else(launched);
    why.map_or(Ok(()), |why| Err(refused("--device cuda", &format!("{why}; {HINT}"))))
}

/// The same for a command that measures the GPU itself.
pub fn present(cuda: &CudaArguments, command: &str) -> Result<(), Failure> {
    lacking(cuda).map_or(Ok(()), |why| Err(refused(command, &why)))
}

/// The same for one that measures the GPUs of all ranks: what this process's is measured with, and the version
/// of NCCL.
pub fn present_among(
    cuda: &CudaArguments,
    command: &str,
    cluster: &Cluster,
) -> Result<(Settings, String), Failure> {
    present(cuda, command)?;
    let mut settings = settings(cuda);
    let found = device::count(&settings.libraries).map_err(|error| error.to_string());
    let found = found.and_then(|count| {
        let version = device::nccl(&settings.libraries).map_err(|error| error.to_string())?;
        Ok((cluster.gpu(count)?, version))
    });
    let (gpu, version) = found.map_err(|why| refused(command, &why))?;
    settings.gpu = gpu;
    Ok((settings, version))
}

fn refused(what: &str, why: &str) -> Failure {
    Failure::Input(format!("`{what}` cannot run on this machine: {why}"))
}

/// What running on a GPU needs and this machine lacks, if something.
fn lacking(cuda: &CudaArguments) -> Option<String> {
    let folders = settings(cuda).libraries;
    let missing: Vec<String> = device::missing(&folders).iter().map(ToString::to_string).collect();
    match device::count(&folders) {
        _ if !missing.is_empty() => Some(missing.join("; ")),
        Ok(0) => Some("the driver has no GPU".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// Why a process cannot have a rank on one of so many GPUs, if it cannot.
fn of_process(cluster: &Cluster, count: usize, folders: &[PathBuf]) -> Result<(), String> {
    cluster.gpu(count)?;
    device::nccl(folders).map(drop).map_err(|error| error.to_string())
}

/// A device for plans whose steps take turns: all of their ranks, or that of this process.
fn device(on: &DeviceArguments, cluster: Option<&Cluster>, plans: &[&[Program]]) -> Result<Device, RunError> {
    let mut settings = settings(&on.cuda);
    let Some(cluster) = cluster else { return Ok(Device::in_turns(&settings, plans)?) };
    settings.gpu = cluster.gpu(device::count(&settings.libraries)?).map_err(RunError::Device)?;
    Ok(Device::among(&settings, &cluster.processes, cluster.connecting, plans)?)
}

/// A session of programs on threads, on processes, or on a GPU.
pub fn session(
    on: &DeviceArguments,
    cluster: Option<&Cluster>,
    listener: &dyn Listener,
    programs: Vec<Program>,
    weights: &dyn run::Stored,
) -> Result<Session, RunError> {
    Ok(sessions(on, cluster, listener, programs, None, weights)?.0)
}

/// The same, and a session of other programs beside it on the same ranks, if there are any.
pub fn sessions(
    on: &DeviceArguments,
    cluster: Option<&Cluster>,
    listener: &dyn Listener,
    programs: Vec<Program>,
    beside: Option<Vec<Program>>,
    weights: &dyn run::Stored,
) -> Result<(Session, Option<Session>), RunError> {
    let session = if on.device == RunDevice::Cpu {
        match cluster {
            Some(cluster) => Session::of_processes(Rc::clone(&cluster.processes), programs, weights)?,
            None => Session::new(programs, weights)?,
        }
    } else {
        listener.say("making kernels ready".into());
        let plans: Vec<&[Program]> = [&programs].into_iter().chain(&beside).map(Vec::as_slice).collect();
        let device = device(on, cluster, &plans)?;
        let rank = cluster.map_or(String::new(), |it| format!(" of rank {}", it.processes.rank()));
        for remark in device.remarks() {
            listener.remark(&format!("gpu{rank}: {remark}"));
        }
        listener.say("reading weights".into());
        let processes = cluster.map(|it| Rc::clone(&it.processes));
        Session::on(Box::new(device), processes, programs, weights)?
    };
    let beside = beside.map(|programs| Session::beside(&session, programs, weights)).transpose()?;
    Ok((session, beside))
}
