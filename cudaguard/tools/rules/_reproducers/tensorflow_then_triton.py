"""Import tensorflow and then triton, and compute with the former. Contains no cudaguard."""

import os

os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")

import tensorflow as tf
import triton._C.libtriton

compiled = tf.function(lambda x: x * 2 + 1, jit_compile=True)
assert float(compiled(tf.constant(3.0))) == 7.0
print("tensorflow compiles and computes, and triton is imported")
