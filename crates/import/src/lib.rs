//! ONNX bytes to a graph.
