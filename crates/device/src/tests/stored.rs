//! Compiled kernels, kept from run to run.

use kernels::cuda::{Work, summed};
use planner_ir::DType;

use crate::cache::loaded;
use crate::emulated::emulated;
use crate::gpu::{Gpu, Priority};
use crate::nvrtc::Nvrtc;
use crate::ready::{Given, Packed};

#[test]
fn kernels_are_compiled_once_and_sums_are_in_the_order_of_addends() {
    let emulated = emulated();
    let cache = emulated.cache.join(format!("kernels-{}", std::process::id()));
    let folders = std::slice::from_ref(&emulated.libraries);
    let gpu = Gpu::open(folders, 0).unwrap();
    let nvrtc = Nvrtc::load(folders).unwrap();
    let works: Vec<Work> = [(DType::F32, 3), (DType::BF16, 5)].map(|(it, n)| summed(it, n, 1000)).to_vec();
    let load = |works: &[Work]| {
        let launches = works.iter().flat_map(|work| &work.launches);
        loaded(&gpu, &nvrtc, Some(&cache), launches).unwrap()
    };
    assert_eq!(load(&works[..1]).compiled, 1);
    assert_eq!(load(&works).compiled, 1);
    let all = load(&works);
    assert_eq!(all.compiled, 0);

    let stream = gpu.stream(Priority::Low).unwrap();
    let memory = gpu.memory(4 * 4096).unwrap();
    let mut given = Given::default();
    // Of large numbers that cancel the order decides what is left.
    for (place, number) in [(0_u64, 1e8_f32), (1, 3.0), (2, -1e8)] {
        let bytes: Vec<u8> = (0..1000).flat_map(|_| number.to_le_bytes()).collect();
        stream.put(memory.start + place * 4096, &bytes).unwrap();
        given.operands.push(memory.start + place * 4096);
    }
    // The sum may lie where an addend was.
    given.results.push(memory.start + 4096);
    for launch in Packed::all(&works[0], &all).unwrap() {
        launch.launch(&stream, &mut given).unwrap();
    }
    let mut found = vec![0; 4000];
    stream.get(memory.start + 4096, &mut found).unwrap();
    let expected = (1e8_f32 + 3.0) - 1e8;
    assert!(
        found.as_chunks::<4>().0.iter().all(|it| f32::from_le_bytes(*it).to_bits() == expected.to_bits())
    );
    std::fs::remove_dir_all(cache).unwrap();
}
