//! Configurations of frameworks, read: what they set, what they are refused for, and that nothing is left unsaid.

use ::schedule::Kind;

use super::*;

const LLAMA: &str = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 --seq-length 8192 --vocab-size 128256 --swiglu \
    --untie-embeddings-and-output-weights --micro-batch-size 1 --global-batch-size 64 --bf16";

fn megatron(text: &str) -> Result<Read, ReadError> {
    read(Runner::Megatron, text, &Beside { devices: Some(16), ..Beside::default() })
}

fn with(more: &str) -> Read {
    megatron(&format!("{LLAMA} {more}")).unwrap()
}

#[test]
fn arguments_set_keys_with_the_defaults_of_megatron() {
    let keys = with("--tensor-model-parallel-size 2 --sequence-parallel").keys;
    let check = |key: &str, expected: Value| assert_eq!(keys.get(key), Some(&expected), "{key}");
    check("num_query_groups", 8.into());
    check("sequence_parallel", true.into());
    check("overlap_grad_reduce", false.into());
    check("zero_stage", 0.into());
    check("recompute_granularity", "none".into());
    check("world_size", 16.into());
    let keys = with("--use-distributed-optimizer --recompute-activations --fp8-format hybrid").keys;
    assert_eq!(
        (keys["zero_stage"].clone(), keys["recompute_granularity"].clone()),
        (1.into(), "selective".into())
    );
    assert_eq!(keys["precision"], "fp8".into());
    let delayed =
        "--fp8-format hybrid --fp8-recipe delayed --fp8-amax-history-len 1024 --fp8-amax-compute-algo max";
    assert_eq!(with(delayed).keys["precision"], "fp8".into());
    let four = with(
        "--fp4-format e2m1 --fp4-recipe nvfp4 --first-last-layers-bf16 --num-layers-at-start-in-bf16 0 \
         --num-layers-at-end-in-bf16 5",
    );
    assert_eq!(four.keys["precision"], "fp4".into());
    assert!(four.strange.is_empty(), "{:?}", four.strange);
    assert!(four.taken.iter().any(|(argument, _)| argument.contains("layers-at-end")), "{:?}", four.taken);
}

/// What `validate_args` refuses has no price.
#[test]
fn what_megatron_refuses_is_refused() {
    let check = |more: &str, expected: &str| {
        let found = megatron(&format!("{LLAMA} {more}")).unwrap_err().to_string();
        assert!(found.contains(expected), "{more}: {found}");
    };
    check("--fp16", "one of the two");
    check("--overlap-param-gather", "`--use-distributed-optimizer` or");
    check("--use-distributed-optimizer --overlap-param-gather", "`--overlap-grad-reduce` with it");
    let fsdp = "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params";
    check(fsdp, "fsdp_dtensor with");
    check("--pipeline-model-parallel-size 16 --num-layers 24", "one that divides the 24 layers");
    check("--max-position-embeddings 4096", "at least the 8192");
    check("--context-parallel-size 16 --seq-length 8208", "a multiple of 32");
    check("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout t*16|t*16", "the one `E`");
    check("--recompute-granularity selective --recompute-modules foo", "some of core_attn");
    let taken = |more: &str| with(more).keys;
    taken(&format!("{fsdp} --ckpt-format fsdp_dtensor"));
    taken("--use-distributed-optimizer --overlap-param-gather --overlap-grad-reduce");
    taken("--max-position-embeddings 8192 --context-parallel-size 16");
    let counted = "--pipeline-model-parallel-size 16 --num-layers 31 --account-for-loss-in-pipeline-split";
    let refused = megatron(&format!("{LLAMA} {counted}")).map(|_| ()).map_err(|it| it.to_string());
    assert!(refused.as_ref().err().is_none_or(|it| !it.contains("that divides")), "{refused:?}");
    // Groups count with their switch alone; beside a model that has some they contradict it.
    let plain = LLAMA.replace("--group-query-attention ", "");
    let read = megatron(&plain).unwrap();
    assert_eq!(read.keys["num_query_groups"], 32.into());
    assert!(read.taken.iter().any(|it| it.0.contains("without --group-query-attention")), "{:?}", read.taken);
}

#[test]
fn torchtitan_refuses_sequences_that_it_does_not_cut() {
    let of = |tokens: u64, degrees: &str| {
        let text = format!(
            "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = {tokens}\nlocal_batch_size = 1\n\
             [parallelism]\n{degrees}"
        );
        read(Runner::Torchtitan, &text, &Beside { devices: Some(16), ..Beside::default() })
    };
    let degrees = "tensor_parallel_degree = 2\ncontext_parallel_degree = 4\n";
    assert!(of(8200, degrees).unwrap_err().to_string().contains("a multiple of 16"));
    assert!(of(8208, degrees).is_ok());
}

#[test]
fn every_argument_is_said_to_be_something() {
    let read = with("--lr 3e-4 --delay-wgrad-compute --mystery 7");
    assert_eq!(read.harmless, ["--lr 3e-4"]);
    assert_eq!(read.taken[0].0, "--delay-wgrad-compute");
    assert_eq!(read.strange, ["--mystery 7"]);
}

/// What each implementation captures, with and without a scope, of old names too; words that mean nothing to a model
/// are left out, others refused.
#[test]
fn graphs_are_what_implementation_and_scope_say() {
    let experts = "--num-experts 8 --expert-model-parallel-size 8";
    let of = |more: &str| {
        let read = with(more);
        assert!(read.strange.is_empty() && read.taken.iter().all(|it| !it.0.contains("graph")), "{read:?}");
        read.keys.get("cuda_graph_scope").map(ToString::to_string)
    };
    let check = |more: &str, expected: &str| {
        assert_eq!(of(more).unwrap_or_default(), expected, "{more}");
    };
    check("", "");
    check("--cuda-graph-impl none --cuda-graph-scope full_iteration", "");
    check("--cuda-graph-impl full_iteration", "[\"full_iteration\"]");
    check("--cuda-graph-impl local --cuda-graph-scope full_iteration", "[\"full_iteration\"]");
    check("--cuda-graph-impl local", "[\"attn\", \"mlp\"]");
    check("--enable-cuda-graph", "[\"attn\", \"mlp\"]");
    check("--external-cuda-graph --cuda-graph-scope full", "[\"attn\", \"mlp\"]");
    check("--external-cuda-graph --cuda-graph-scope attn --cuda-graph-warmup-steps 3", "[\"attn\"]");
    check("--cuda-graph-impl transformer_engine --cuda-graph-modules attn moe_router mamba", "[\"attn\"]");
    let scope = "--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess";
    check(&format!("{experts} {scope}"), "[\"attn\", \"moe_router\", \"moe_preprocess\"]");
    check(&format!("{experts} --cuda-graph-impl transformer_engine"), "[\"attn\", \"moe\"]");
    let wrong = |more: &str| megatron(&format!("{LLAMA} {more}")).unwrap_err().to_string();
    assert_eq!(
        wrong("--cuda-graph-impl all"),
        "`--cuda-graph-impl` is all, expected none, local, transformer_engine or full_iteration"
    );
    assert_eq!(
        wrong("--cuda-graph-impl transformer_engine --cuda-graph-scope full_iteration"),
        "`--cuda-graph-scope` is full_iteration, expected attn, mlp, moe, moe_router, moe_preprocess, mamba or, where \
         the implementation is local, full_iteration"
    );
    let narrow = with("--fp8-format hybrid --fp8-dot-product-attention").keys;
    assert_eq!(narrow["fp8_dot_product_attention"], true.into());
    assert_eq!(
        wrong("--attention-backend flash --fp8-dot-product-attention"),
        "`--fp8-dot-product-attention` is stated, expected `--attention-backend fused` with it"
    );
}

/// What drops tokens beyond a capacity, or deals them out, holds the busiest expert; a capacity below 0 is none.
#[test]
fn experts_are_held_to_a_capacity() {
    let held = |more: &str| {
        let read = with(&format!("--num-experts 8 {more}"));
        assert!(read.strange.is_empty(), "{:?}", read.strange);
        read.held
    };
    let capacity = "--moe-expert-capacity-factor 1.25";
    assert_eq!(held("--moe-aux-loss-coeff 1e-2"), None);
    assert_eq!(held("--moe-expert-capacity-factor -1"), None);
    assert_eq!(held(capacity), Some((1.25, capacity.to_owned())));
    let rank = "--moe-expert-rank-capacity-factor 1.5";
    assert_eq!(held(rank), Some((1.5, rank.to_owned())));
    let forced = "--moe-router-force-load-balancing";
    assert_eq!(held(&format!("{capacity} {forced}")), Some((1.0, forced.to_owned())));
    let wrong = megatron(&format!("{LLAMA} --num-experts 8 --moe-expert-capacity-factor much")).unwrap_err();
    let expected = "`moe_expert_capacity_factor` is much, expected a number; below 0 for no capacity";
    assert_eq!(wrong.to_string(), expected);
}

#[test]
fn a_script_is_its_words() {
    let script = "# a --comment\nGPUS=8\nARGS=(\n --num-layers 2 # two\n --hidden-size '64'\n)\n\
                  torchrun --nproc_per_node $GPUS --nnodes ${N:-2} \\\n train.py \"${ARGS[@]}\" --lr=\"1\"; ls";
    let words = script::words(script).unwrap();
    let expected = [
        "--num-layers",
        "2",
        "--hidden-size",
        "64",
        "--",
        "torchrun",
        "--nproc_per_node",
        "8",
        "--nnodes",
        "2",
        "train.py",
        "",
        "--lr=1",
        "--",
        "ls",
    ];
    assert_eq!(words, expected);
    let wrong = script::words("a\n'b").unwrap_err();
    assert_eq!(wrong.to_string(), "line 2: a quote ' that does not end");
}

#[test]
fn what_is_wrong_is_said() {
    let check = |more: &str, expected: &str| {
        assert_eq!(megatron(&format!("{LLAMA} {more}")).unwrap_err().to_string(), expected);
    };
    check("--num-layers many", "`num_layers` is many, expected a whole number");
    check(
        "--micro-batch-size",
        "`micro_batch_size` is `--micro-batch-size` alone, expected a value after it",
    );
    check(
        "--micro-batch-size $MBS",
        "`micro_batch_size` is $MBS, expected a value: nothing in the script says what that variable is",
    );
    check(
        "--world-size 8",
        "`world_size` is said twice: 16 (the machine), and 8 (the configuration); leave one out",
    );
    check("--recompute-granularity some", "`--recompute-granularity` is some, expected selective or full");
    let without = LLAMA.replace("--bf16", "");
    assert!(megatron(&without).unwrap_err().to_string().starts_with("does not state `--bf16` or `--fp16`"));
}

/// Layers of a layout, and those that predict further tokens, which it places.
#[test]
fn layouts_say_layers_of_stages() {
    let keys = with(
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*15|t*17mL' --mtp-num-layers 1",
    )
    .keys;
    assert_eq!(keys["pipeline_layers"], Value::from(vec![15, 18]));
    assert_eq!((&keys["num_layers"], &keys["mtp_num_layers"]), (&32.into(), &1.into()));
    // Without a layout they are in the last stage, beside equal shares of the others.
    let keys = with("--pipeline-model-parallel-size 4 --mtp-num-layers 2").keys;
    assert_eq!(keys["pipeline_layers"], Value::from(vec![8, 8, 8, 10]));
    assert!(!with("--pipeline-model-parallel-size 4").keys.contains_key("mtp_num_layers"));
}

/// What is written task by task is called as what it is; what is no order that is known is said to be another.
#[test]
fn orders_of_work_are_read_beside_a_configuration_of_torchtitan() {
    let text = "def configured(config):\n    config.parallelism = ParallelismConfig(\n        \
                pipeline_parallel_degree=4,\n        data_parallel_shard_degree=1,\n        \
                pipeline_parallel_schedule_csv=str(Path(__file__).with_name(\"schedule.csv\")),\n    )\n    \
                config.training.local_batch_size = 8\n    config.training.seq_len = 128\n";
    let model = r#"{"model_type":"llama","vocab_size":19,"hidden_size":16,"intermediate_size":12,
        "num_hidden_layers":8,"num_attention_heads":4}"#;
    let of = |written: Option<String>| {
        let beside = Beside {
            devices: Some(4),
            model: Some(model.to_owned()),
            schedule: written,
            ..Beside::default()
        };
        let read = read(Runner::Torchtitan, text, &beside).unwrap();
        let said = read.taken.iter().any(|it| it.0.contains("schedule_csv"));
        (read.keys["schedule"].as_str().unwrap().to_owned(), said)
    };
    for kind in Kind::ALL.into_iter().filter(|it| !it.interleaves()) {
        let written = ::export::torchtitan::csv(&kind.schedule(4, 1, 8).unwrap());
        let (name, said) = of(Some(written));
        let known = predict::config::SCHEDULE.iter().any(|it| it.1 == kind);
        assert_eq!((name.as_str(), said), (if known { kind.name() } else { "1f1b" }, !known), "{kind:?}");
    }
    for written in [None, Some(String::new()), Some("0F0,0F1".to_owned())] {
        assert_eq!(of(written), ("1f1b".to_owned(), true));
    }
}

#[test]
fn bridge_is_megatron_by_other_names() {
    let text = "model:\n  num_layers: 32\n  hidden_size: 4096\n  num_attention_heads: 32\n  seq_length: 8192\n  \
                gated_linear_unit: true\n  softmax_type: learnable\n  glu_linear_offset: 1.0\n  \
                activation_func_clamp_value: 7.0\n  window_size: [127, 0]\n  window_attn_skip_freq: [1, 0]\n  \
                recompute_modules: [core_attn]\n  recompute_granularity: selective\n  \
                share_embeddings_and_output_weights: false\ntrain:\n  micro_batch_size: 1\n  global_batch_size: 16\n\
                optimizer:\n  lr: 1\nddp:\n  use_distributed_optimizer: true\nmixed_precision: bf16_mixed\nodd: 1\n";
    let beside = Beside { devices: Some(16), ..Beside::default() };
    let read = read(Runner::Bridge, text, &beside).unwrap();
    assert_eq!(read.keys["zero_stage"], 1.into());
    assert_eq!(read.keys["recompute_granularity"], "selective".into());
    assert_eq!(read.keys["swiglu"], true.into());
    assert_eq!(read.strange, ["odd: 1"]);
    let model = ["softmax_type: \"learnable\"", "glu_linear_offset: 1.0", "activation_func_clamp_value: 7.0"];
    let model = model.map(|it| format!("model.{it}"));
    let mut harmless = read.harmless.clone();
    harmless.sort();
    assert_eq!(harmless, [&model[2], &model[1], &model[0], "optimizer.lr: 1"]);
    let windows: Vec<&str> =
        read.taken.iter().map(|it| &it.0[..]).filter(|it| it.contains("window")).collect();
    assert_eq!(windows, ["model.window_attn_skip_freq: [1,0]", "model.window_size: [127,0]"]);
}

/// DeepSeek V3 by its `config.json`, and as a script of Megatron-LM writes it: one setup, and none that says otherwise.
#[test]
fn layers_without_experts_are_read() {
    let model = r#"{"model_type":"deepseek_v3","vocab_size":1024,"hidden_size":64,"intermediate_size":96,
        "moe_intermediate_size":32,"n_routed_experts":8,"num_experts_per_tok":2,"first_k_dense_replace":1,
        "num_hidden_layers":4,"num_attention_heads":4,"tie_word_embeddings":false}"#;
    let keys = sizes(model).unwrap().keys;
    assert_eq!(keys["moe_layer_freq"], vec![0, 1, 1, 1].into());
    assert_eq!((&keys["ffn_hidden_size"], &keys["moe_ffn_hidden_size"]), (&96.into(), &32.into()));
    let script = "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 \
                  --micro-batch-size 1 --bf16 --swiglu --untie-embeddings-and-output-weights --vocab-size 1024 \
                  --ffn-hidden-size 96 --num-experts 8 --moe-ffn-hidden-size 32 --moe-router-topk 2";
    let of = |more: &str, model: Option<&str>| {
        let beside = Beside { devices: Some(4), model: model.map(str::to_owned), ..Beside::default() };
        read(Runner::Megatron, &format!("{script} {more}"), &beside)
    };
    let alone = of("--moe-layer-freq '([0]+[1]*3)'", None).unwrap().keys;
    for key in ["moe_layer_freq", "ffn_hidden_size", "moe_ffn_hidden_size"] {
        assert_eq!(alone[key], keys[key]);
    }
    assert!(of("--moe-layer-freq [0,1,1,1]", Some(model)).is_ok());
    assert!(of("", Some(model)).is_ok());
    assert_eq!(of("--moe-layer-freq 3", None).unwrap().keys["moe_layer_freq"], vec![1, 0, 0, 1].into());
    assert_eq!(of("--moe-layer-freq 1", None).unwrap().keys["moe_layer_freq"], 1.into());
    let sparse = model.replace("\"first_k_dense_replace\":1", "\"first_k_dense_replace\":0");
    let other = of("--moe-layer-freq [0,1,1,1]", Some(&sparse)).unwrap_err().to_string();
    assert!(other.starts_with("`moe_layer_freq` is said twice: 1, and "), "{other}");
    // DeepSeek V3 has three if nothing is said; what is no number is refused.
    let usual = sizes(&model.replace("\"first_k_dense_replace\":1,", "")).unwrap().keys;
    assert_eq!(usual["moe_layer_freq"], vec![0, 0, 0, 1].into());
    let wrong = sizes(&model.replace("replace\":1", "replace\":\"1\"")).unwrap_err().to_string();
    assert!(wrong.contains("`first_k_dense_replace` \"1\", expected a whole number"), "{wrong}");
    let other = of("--moe-layer-freq 1", Some(model)).unwrap_err().to_string();
    assert!(other.starts_with("`moe_layer_freq` is said twice"), "{other}");
    for wrong in ["0", "[1]", "[0]*4", "x"] {
        let refused = of(&format!("--moe-layer-freq {wrong}"), None).unwrap_err().to_string();
        assert!(
            refused.ends_with(
                "expected a number from 1, or a list of a 1 or a 0 for each of the 4 layers, with a 1"
            ),
            "{refused}"
        );
    }
    // Of Qwen every second layer but those that are listed.
    let qwen = r#"{"model_type":"qwen3_moe","vocab_size":1024,"hidden_size":64,"intermediate_size":96,
        "moe_intermediate_size":32,"num_experts":8,"num_experts_per_tok":2,"decoder_sparse_step":2,
        "mlp_only_layers":[3],"num_hidden_layers":6,"num_attention_heads":4}"#;
    assert_eq!(sizes(qwen).unwrap().keys["moe_layer_freq"], vec![0, 1, 0, 0, 0, 1].into());
}
