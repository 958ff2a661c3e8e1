//! A graph to the space of programs equal to it, by e-graph.
