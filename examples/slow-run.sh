#!/bin/bash
# Llama 3 8B on eight nodes, as a Megatron-LM launch script; slow-run.log is made up: 2.16 s a step.
MODEL=(--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --swiglu --vocab-size 128256 --untie-embeddings-and-output-weights
    --seq-length 8192 --max-position-embeddings 8192)
TRAIN=(--micro-batch-size 1 --global-batch-size 64 --train-iters 1000 --bf16)
PARALLEL=(--tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer)
torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py ${MODEL[@]} ${TRAIN[@]} ${PARALLEL[@]}
