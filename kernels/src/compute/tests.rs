//! What is refused, whatever the operation.

use planner_ir::{Binary, DType, Op, Type, Unary};

use crate::{Array, KernelError, Span, Tensor, TensorMut, compute, evaluate};

#[test]
fn values_start_at_cache_lines_and_keep_their_bytes() {
    for length in [0, 1, 63, 64, 1000] {
        let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let extent = u64::try_from(bytes.len()).unwrap();
        let array = Array::from_bytes(Type::new(DType::U8, [extent]), &bytes).unwrap();
        for array in [array.clone(), array] {
            assert_eq!(array.bytes(), bytes);
            assert_eq!(array.bytes().as_ptr().align_offset(64), 0);
        }
    }
}

#[test]
fn bad_operands_are_errors() {
    let x = Array::of([2], &[1.0_f32, 2.0]).unwrap();
    let truth = Array::of_truths([2], &[true, false]).unwrap();
    assert!(evaluate(&Op::Unary(Unary::Exp), &[&x, &x]).is_err());
    assert!(evaluate(&Op::Unary(Unary::Exp), &[&truth]).is_err());
    let mut y = x.clone();
    let op = Op::Unary(Unary::Exp);
    let found = compute(&op, &[], &mut [y.tensor_mut()]);
    assert!(matches!(found, Err(KernelError::Count { .. })));
    let found = compute(&op, &[x.tensor()], &mut []);
    assert!(matches!(found, Err(KernelError::Count { .. })));
    let short = Tensor { bytes: &x.bytes()[..4], ..x.tensor() };
    let found = compute(&op, &[short], &mut [y.tensor_mut()]);
    assert_eq!(found, Err(KernelError::Bytes { found: 4, expected: 8 }));
    let spans = [Span::contiguous(4, 0); 2];
    let found = compute(&op, &[Tensor { spans: &spans, ..x.tensor() }], &mut [y.tensor_mut()]);
    assert!(matches!(found, Err(KernelError::Count { of: "spans", .. })));
    let found = compute(&op, &[truth.tensor()], &mut [y.tensor_mut()]);
    assert!(matches!(found, Err(KernelError::Elements { .. } | KernelError::Shape { .. })));
}

#[test]
fn no_elements_lie_anywhere() {
    let bytes = [0_u8; 17];
    let offset = usize::from(bytes.as_ptr().align_offset(4) == 0);
    let x = Tensor { dtype: DType::F32, shape: &[2, 0], bytes: &bytes[offset..offset], spans: &[] };
    let mut y = Array::zeros(Type::new(DType::F32, [0, 1])).unwrap();
    let op = Op::Slice { starts: vec![0, 0], steps: vec![1, 1], sizes: vec![0, 0] };
    let mut y = TensorMut { shape: &[0, 0], ..y.tensor_mut() };
    assert_eq!(compute(&op, &[x], std::slice::from_mut(&mut y)), Ok(()));
}

#[test]
fn bytes_between_elements_are_refused() {
    let bytes = [0_u8; 17];
    let offset = usize::from(bytes.as_ptr().align_offset(4) == 0);
    let x = Tensor { dtype: DType::F32, shape: &[4], bytes: &bytes[offset..offset + 16], spans: &[] };
    let mut y = Array::zeros(Type::new(DType::F32, [4])).unwrap();
    let found = compute(&Op::Unary(Unary::Neg), &[x], &mut [y.tensor_mut()]);
    assert_eq!(found, Err(KernelError::Alignment));
}

#[test]
fn shapes_too_large_for_memory_are_errors() {
    let type_ = Type::new(DType::F64, [1 << 40, 1 << 40]);
    assert_eq!(Array::zeros(type_), Err(KernelError::Size));
    let type_ = Type::new(DType::F64, [1 << 60]);
    assert_eq!(Array::zeros(type_), Err(KernelError::Size));
}

#[test]
fn blocks_of_results_need_not_have_the_shape_that_is_inferred() {
    let x = Array::of([1], &[3_i64]).unwrap();
    let mut y = Array::zeros(Type::new(DType::I64, [2])).unwrap();
    compute(&Op::Binary(Binary::Add), &[x.tensor(), x.tensor()], &mut [y.tensor_mut()]).unwrap();
    assert_eq!(y.elements::<i64>().unwrap(), [6, 6]);
}
