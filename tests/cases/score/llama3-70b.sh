#!/bin/bash
# Llama 3 70B on 64 H100.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${NNODES:-8}

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --master_addr ${MASTER_ADDR:-localhost}
)
MODEL_ARGS=(
    --use-mcore-models
    --num-layers 80
    --hidden-size 8192
    --ffn-hidden-size 28672
    --num-attention-heads 64
    --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192
    --swiglu --normalization RMSNorm --disable-bias-linear
    --position-embedding-type rope --rotary-base 500000
    --untie-embeddings-and-output-weights
    --vocab-size 128256
)
torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py "${MODEL_ARGS[@]}" \
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 8 \
    --num-virtual-stages-per-pipeline-rank 5 \
    --sequence-parallel --use-distributed-optimizer \
    --overlap-grad-reduce --overlap-param-gather \
    --micro-batch-size 1 --global-batch-size 128 \
    --bf16 --fp8-format hybrid --lr 1e-4 --train-iters 100 --data-path $DATA
