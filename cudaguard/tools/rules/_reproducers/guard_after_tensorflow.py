"""Import tensorflow, have a guard only then, if it is allowed, and import triton."""

import os

os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")

import tensorflow as tf

import cudaguard

cudaguard.install()  # does nothing under CUDAGUARD=off
import triton._C.libtriton

assert float(tf.reduce_sum(tf.ones((8, 8)))) == 64.0
print("triton is imported after tensorflow, which computes")
