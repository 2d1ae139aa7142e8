#!/bin/bash
GPUS_PER_NODE=8
NNODES=${NNODES:-"4"}
D=( --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES )
MODEL_ARGS=(
    --use-mcore-models
    --disable-bias-linear
    --seq-length 4096
    --max-position-embeddings 32768
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --normalization RMSNorm
    --position-embedding-type rope
    --swiglu
    --untie-embeddings-and-output-weights
    --group-query-attention
    --num-query-groups 8
)
MOE_ARGS=(
    --num-experts 8
    --moe-router-topk 2
#    --moe-unused-flag
    --moe-token-dispatcher-type alltoall
    --overlap-param-gather
    --overlap-grad-reduce
)
TRAINING_ARGS=(--micro-batch-size 0 --global-batch-size 256 --train-iters 500000 --bf16 --tokenizer-type Llama2Tokenizer)
P=(--tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8
   --use-distributed-optimizer --sequence-parallel)
if [ -n "${WANDB_API_KEY}" ]; then
    LOGGING=(--wandb-project ${WANDB_PROJECT:-"M"})
fi
torchrun ${D[@]} pretrain_gpt.py ${MODEL_ARGS[@]} ${MOE_ARGS[@]} ${TRAINING_ARGS[@]} ${P[@]}
