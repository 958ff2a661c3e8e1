# Mixtral 8x7B on 64 H100, without the parts of Megatron-LM's example that say nothing of parallelism.
torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py \
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 32768 \
    --swiglu --untie-embeddings-and-output-weights --vocab-size 32000 --disable-bias-linear \
    --num-experts 8 --moe-router-topk 2 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2 \
    --moe-grouped-gemm --moe-token-dispatcher-type alltoall \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 \
    --num-layers-per-virtual-pipeline-stage 1 --use-distributed-optimizer --overlap-grad-reduce \
    --overlap-param-gather --micro-batch-size 1 --global-batch-size 256 --bf16
