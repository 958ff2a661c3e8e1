//! What the scripts of all servers have in common: comments, arguments line by line, and several nodes.

use crate::serving::{Serving, counted};

/// A name of an argument and its value; nothing for a switch.
pub(crate) type Argument = (&'static str, Option<String>);

/// An argument with a value.
pub(crate) fn with(name: &'static str, value: impl ToString) -> Argument {
    (name, Some(value.to_string()))
}

/// A script that runs a command with these arguments, and on several nodes those besides.
pub(crate) fn script(
    serving: &Serving,
    (title, version, file): (&str, &str, &str),
    (command, arguments, of_nodes): (&str, &[Argument], &[Argument]),
) -> String {
    let several = serving.nodes() > 1 && !of_nodes.is_empty();
    let mut text =
        format!("#!/bin/sh\n# {title} {version} for a plan of Shardloom: {}.\n", serving.in_words());
    let room = &serving.room;
    text += &format!("# On a device: {} of weights", bytes(room.weights));
    if room.cache > 0 {
        text += &format!(", {} of cache for {}", bytes(room.cache), counted(serving.of_group(), "sequence"));
    }
    text += &format!(", at most {} of a step; it may hold {}.\n", bytes(room.step), bytes(room.capacity));
    if serving.served.replicas > 1 {
        text += &format!(
            "# There are {} such servers, each on {}: run each with a `CUDA_VISIBLE_DEVICES` and a port of its own, and \
             send each as many requests.\n",
            serving.served.replicas,
            counted(serving.of_server(), "device")
        );
    }
    // What is one command on each node has its place; what is one job of all nodes, how it is started.
    let place = if several { "HEAD=10.0.0.1 NODE=0 " } else { "" };
    let (nodes, ranks) = (serving.nodes(), serving.of_server());
    let job = if nodes > 1 && !several {
        let each = ranks / nodes;
        format!("srun --nodes {nodes} --ntasks {ranks} --ntasks-per-node {each} --mpi=pmix ")
    } else {
        String::new()
    };
    text += &format!("#   {place}MODEL=name/or/folder {job}sh {file}\n");
    if several {
        text += &format!(
            "# On each of {} nodes: NODE is its number, HEAD the address of node 0.\n",
            serving.nodes()
        );
    }
    let of_nodes = if several { of_nodes } else { &[] };
    let words = arguments.iter().chain(of_nodes).map(|(name, value)| match value {
        Some(value) => format!("{name} {value}"),
        None => (*name).to_owned(),
    });
    let lines: Vec<String> = [format!("{command} \"$@\"")].into_iter().chain(words).collect();
    text + &lines.join(" \\\n  ") + "\n"
}

/// Decimal bytes, to three places.
fn bytes(bytes: u64) -> String {
    let megabytes = (bytes + 500_000) / 1_000_000;
    format!("{}.{:03} GB", megabytes / 1000, megabytes % 1000)
}
