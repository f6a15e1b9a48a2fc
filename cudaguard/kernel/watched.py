# ruff: noqa: SIM905  # a list of words would have a line for each word
"""What wakes the guard. Generated: after a change, python .ci/make_index.py.

WATCHED are modules; WINDOWS, more of them there. BROUGHT and FIRST are libraries that rules bring
for an extension which needs them, the latter if the environment has them: beginnings of names, and
names. LIBRARIES and PARTS are those that detectors know: names up to ``.so``, and beginnings.
GLOBAL are beginnings of the names of libraries that may be global without anybody being told.
"""

WATCHED = "accelerate.launchers apex bitsandbytes causal_conv1d ctranslate2 cucim cuda.bindings.driver cuda.bindings.runtime cudf cugraph cuml cupy cuspatial cv2 decord deepspeed detectron2 dgl diff_gaussian_rasterization distributed.comm.ucx distributed_ucxx.ucxx faiss flash_attn flashinfer fvdb gsplat horovod isaaclab isaacsim jax jaxlib kaolin lightgbm lightning.fabric.strategies.launchers.multiprocessing lightning_fabric.strategies.launchers.multiprocessing mamba_ssm mmcv mxnet numba.cuda numba.cuda.cudadrv.devicearray nvdiffrast nvidia nvidia.dali nvidia.dali.backend omni.isaac onnxruntime open3d paddle peft pycuda.autoinit pycuda.autoprimaryctx pycuda.driver pylibraft pytorch3d quack rmm sam2 sglang sklearn spconv taichi tensorflow tensorrt tinycudann torch torch.cuda.memory torch_cluster torch_scatter torch_sparse torchaudio torchcodec torchvision transformer_engine transformer_engine.jax transformer_engine.pytorch transformers triton trl unsloth vllm warp xformers xgboost".split()
WINDOWS = "PyQt5 PyQt6 PySide2 PySide6 optree pyarrow shiboken2 shiboken6 wx".split()
BROUGHT = "libc10.so libc10_cuda.so libcublas libcudart.so libcudnn libcufft libcurand.so libcusolver libcusparse libnccl.so libnvJitLink.so libnvrtc.so libnvshmem libtorch.so libtorch_cpu.so libtorch_cuda.so libtorch_python.so".split()
FIRST = "libgomp.so.1 libstdc++.so.6 libtbb.so.12".split()
LIBRARIES = "libcublas libcublasLt libcuda libcudart libcudnn libcufft libcupti libcurand libcusolver libcusparse libcusparseLt libiomp5 libnccl libnvJitLink libnvrtc libomp".split()
PARTS = "libcudnn_".split()
GLOBAL = "ld-linux libc++.so libc++abi.so libc-2. libc.so libcublas libcuda.so libcudadevrt libcudart libdl-2. libdl.so libgcc_s.so libgomp libiomp5 libm-2. libm.so libmpi libomp libonnxruntime_providers_shared.so libpthread-2. libpthread.so libpython3 librt-2. librt.so libstdc++.so libtorch_global_deps.so libunwind.so libutil-2. libutil.so vgpreload".split()
