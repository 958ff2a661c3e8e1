//! Matrix products by the library, against plain sums: all ways in which matrices may lie.

use kernels::cuda::{MatrixProduct, product};
use kernels::{Array, evaluate};
use planner_ir::{Contract, DType, Label, Op, Type};

use crate::emulated::emulated;
use crate::gpu::{Gpu, Priority};
use crate::products::{Places, Products};

const WORKSPACE: u64 = 1 << 16;

/// Contractions: one matrix product or several, each matrix as it is or turned.
fn contractions() -> Vec<Contract> {
    let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect::<Vec<_>>();
    let mut all = Vec::new();
    for batch in ["", "z"] {
        for left in ["ik", "ki"] {
            for right in ["kj", "jk"] {
                for result in ["ij", "ji"] {
                    let with = |it: &str| labels(&format!("{batch}{it}"));
                    all.push(Contract { left: with(left), right: with(right), result: with(result) });
                }
            }
        }
    }
    all
}

fn shape(labels: &[Label], sizes: &dyn Fn(Label) -> u64) -> Vec<u64> {
    labels.iter().map(|&it| sizes(it)).collect()
}

fn numbers(dtype: DType, shape: Vec<u64>, seed: u64) -> Array {
    let count: u64 = shape.iter().product();
    let of = |at: u64| {
        let mixed = (at + 31 * seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
        f64::from(u32::try_from(mixed).unwrap()) / 8.0 - 2.0
    };
    let array = Array::of::<f64>(shape, &(0..count).map(of).collect::<Vec<_>>()).unwrap();
    evaluate(&Op::Cast(dtype), &[&array]).unwrap().remove(0)
}

/// Where what a product is added to is.
#[derive(Clone, Copy)]
enum Over {
    /// Where the result is made.
    There,
    Elsewhere,
}

/// The library's product of two values, and whether its algorithm had to be found.
fn by_library(
    products: &mut Products,
    gpu: &std::rc::Rc<Gpu>,
    described: &MatrixProduct,
    operands: [&Array; 2],
    (type_, addend): (&Type, Option<(&Array, Over)>),
) -> Array {
    let stream = gpu.stream(Priority::Low).unwrap();
    let room = |bytes: u64| gpu.memory(bytes.max(1)).unwrap();
    let size = |array: &Array| u64::try_from(array.bytes().len()).unwrap();
    let memory = [room(size(operands[0])), room(size(operands[1])), room(type_.bytes())];
    let workspace = room(WORKSPACE);
    for (operand, memory) in operands.iter().zip(&memory) {
        stream.put(memory.start, operand.bytes()).unwrap();
    }
    let matrices = [memory[0].start, memory[1].start, memory[2].start];
    let other = room(type_.bytes());
    let there = addend.map(|(array, over)| match over {
        Over::There => (array, memory[2].start),
        Over::Elsewhere => (array, other.start),
    });
    let places = Places { matrices, addend: there.map(|it| it.1), workspace: workspace.start };
    let dtypes = [operands[0].dtype(), type_.dtype];
    let ready = products.ready(described, dtypes, places, &stream).unwrap();
    let ready = ready.expect("the library has an algorithm");
    stream.fill(memory[2].start, 0x7f, type_.bytes()).unwrap();
    if let Some((array, start)) = there {
        stream.put(start, array.bytes()).unwrap();
    }
    ready.compute(places, WORKSPACE, &stream).unwrap();
    let mut made = Array::zeros(type_.clone()).unwrap();
    stream.get(memory[2].start, made.bytes_mut()).unwrap();
    made
}

#[test]
fn the_library_computes_contractions_however_matrices_lie() {
    let emulated = emulated();
    let cache = emulated.cache.join(format!("products-{}", std::process::id()));
    let gpu = Gpu::open(std::slice::from_ref(&emulated.libraries), 0).unwrap();
    let folders = std::slice::from_ref(&emulated.libraries);
    let sizes =
        [("ijkz", [6, 10, 9, 3]), ("ijkz", [1, 7, 5, 2]), ("ijkz", [4, 1, 1, 1]), ("ijkz", [1, 1, 6, 2])];
    for round in 0..2 {
        let mut products = Products::load(&gpu, folders, Some(&cache), WORKSPACE).unwrap();
        let mut tried = 0;
        for contract in contractions() {
            for (names, sizes) in sizes {
                let size = |label: Label| sizes[names.bytes().position(|it| it == label.0 + b'a').unwrap()];
                for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
                    let a = numbers(dtype, shape(&contract.left, &size), 1);
                    let b = numbers(dtype, shape(&contract.right, &size), 2);
                    let type_ = Type::new(dtype, shape(&contract.result, &size));
                    let described = product(&contract, [a.type_(), b.type_()], &type_).unwrap();
                    let found = by_library(&mut products, &gpu, &described, [&a, &b], (&type_, None));
                    let expected = evaluate(&Op::Contract(contract.clone()), &[&a, &b]).unwrap().remove(0);
                    let (found, expected) = (found.to_floats().unwrap(), expected.to_floats().unwrap());
                    let near =
                        found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 0.01 * b.abs().max(1.0));
                    assert!(near, "{contract:?} of {sizes:?} in {dtype}: {found:?}, expected {expected:?}");
                    tried += 1;
                }
            }
        }
        if round == 0 {
            assert!((1..=tried).contains(&products.timed()), "{} of {tried}", products.timed());
        } else {
            assert_eq!(products.timed(), 0, "what was found is in the file");
        }
    }
    std::fs::remove_dir_all(cache).unwrap();
}

#[test]
fn the_library_adds_products_to_what_is_there_in_more_digits() {
    let emulated = emulated();
    let gpu = Gpu::open(std::slice::from_ref(&emulated.libraries), 0).unwrap();
    let folders = std::slice::from_ref(&emulated.libraries);
    let mut products = Products::load(&gpu, folders, None, WORKSPACE).unwrap();
    let (names, sizes) = ("ijkz", [6, 10, 9, 3]);
    for contract in contractions() {
        let size = |label: Label| sizes[names.bytes().position(|it| it == label.0 + b'a').unwrap()];
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            let a = numbers(dtype, shape(&contract.left, &size), 1);
            let b = numbers(dtype, shape(&contract.right, &size), 2);
            let type_ = Type::new(dtype.accumulated(), shape(&contract.result, &size));
            let addend = numbers(type_.dtype, type_.shape.clone(), 3);
            let described = product(&contract, [a.type_(), b.type_()], &type_).unwrap();
            let expected = evaluate(&Op::Contract(contract.clone()), &[&a, &b, &addend]).unwrap().remove(0);
            let expected = expected.to_floats().unwrap();
            for over in [Over::There, Over::Elsewhere] {
                let found =
                    by_library(&mut products, &gpu, &described, [&a, &b], (&type_, Some((&addend, over))));
                let found = found.to_floats().unwrap();
                let near = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs().max(1.0));
                assert!(near, "{contract:?} in {dtype}: {found:?}, expected {expected:?}");
            }
        }
    }
}
