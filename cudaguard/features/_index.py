# ruff: noqa: SIM905  # a list of words would have a line for each word
"""All features, as the core knows them. Generated: after a change, python .ci/make_index.py.

An entry is a text ``module:name``; `cudaguard.core.table` says what each table is for.
"""

from __future__ import annotations

RULES: tuple[tuple[object, ...], ...] = (
    ('CG001', 'cudaguard.features.symbol_scope.rules:RULES', 'automatic', ('decord',), (), (('load_local', 'libdecord.so*'),), {'platform': 'linux', 'more': True}),
    ('CG002', 'cudaguard.features.symbol_scope.rules:RULES', 'automatic', ('tensorflow',), (), (('load_local', 'libtensorflow_*.so*'),), {'platform': 'linux', 'more': True}),
    ('CG073', 'cudaguard.features.import_order.rules:RULES', 'automatic', ('cv2',), (), (('set_for_windows', 'QT_QPA_PLATFORM_PLUGIN_PATH'),), {'platform': 'linux'}),
    ('CG041', 'cudaguard.features.import_order.rules:RULES', 'opt-in', ('transformers', 'trl', 'peft'), ('unsloth',), (), {'more': True}),
    ('CG003', 'cudaguard.features.import_order.rules:RULES', 'automatic', ('torch',), (), (('provide_libraries', 'libc10.so'), ('provide_libraries', 'libc10_cuda.so'), ('provide_libraries', 'libtorch.so'), ('provide_libraries', 'libtorch_cpu.so'), ('provide_libraries', 'libtorch_cuda.so'), ('provide_libraries', 'libtorch_python.so')), {'platform': 'linux'}),
    ('CG046', 'cudaguard.features.import_order.rules:RULES', 'automatic', ('nvidia',), (), (('fetch_installed', 'lib*.so*'), ('preload_needed', 'libcublas*.so*'), ('preload_needed', 'libcudart.so*'), ('preload_needed', 'libcudnn*.so*'), ('preload_needed', 'libcufft*.so*'), ('preload_needed', 'libcurand.so*'), ('preload_needed', 'libcusolver*.so*'), ('preload_needed', 'libcusparse*.so*'), ('preload_needed', 'libnccl.so*'), ('preload_needed', 'libnvJitLink.so*'), ('preload_needed', 'libnvrtc.so*'), ('preload_needed', 'libnvshmem*.so*')), {'platform': 'linux'}),
    ('CG047', 'cudaguard.features.import_order.rules:RULES', 'automatic', ('torch', 'tensorflow', 'jaxlib', 'nvidia.dali'), (), (('preload_newest', 'libstdc++.so.6'), ('preload_newest', 'libgomp.so.1'), ('preload_newest', 'libtbb.so.12')), {'platform': 'linux'}),
    ('CG007', 'cudaguard.features.import_order.rules:RULES', 'automatic', ('onnxruntime',), (), (('preload', 'onnxruntime/capi/libonnxruntime_providers_cuda.so'),), {'platform': 'linux', 'more': True}),
    ('CG072', 'cudaguard.features.import_order.rules:RULES', 'automatic', ('ctranslate2',), (), (('preload', 'libcublas.so.12'), ('preload', 'libcudnn_ops_infer.so.8'), ('preload', 'libcudnn_cnn_infer.so.8'), ('preload', 'libcudnn_graph.so.9'), ('preload', 'libcudnn_ops.so.9'), ('preload', 'libcudnn_cnn.so.9'), ('preload', 'libcudnn_adv.so.9')), {'platform': 'linux'}),
    ('CG035', 'cudaguard.features.import_order.rules:RULES', 'automatic', ('torch',), (), (('preload_hidden', 'nvidia/cudnn/lib/libcudnn*.so.[89]'),), {'platform': 'linux', 'env': {'LD_LIBRARY_PATH': True}}),
    ('CG068', 'cudaguard.features.import_order.rules:RULES', 'automatic', ('torch', 'tensorflow', 'cv2', 'mxnet', 'sklearn', 'xgboost', 'lightgbm'), (), (('preload_static_tls', 'lib*.so*'),), {'platform': 'linux'}),
    ('CG013', 'cudaguard.features.cuda_init.rules:RULES', 'opt-in', ('pycuda.autoinit',), (), (('replace_module', 'pycuda.autoprimaryctx'),), {'more': True}),
    ('CG069', 'cudaguard.features.cuda_init.rules:RULES', 'automatic', ('cudf',), (), (('set_env', 'RAPIDS_NO_INITIALIZE'),), {'more': True}),
    ('CG019', 'cudaguard.features.array_interface.rules:RULES', 'automatic', ('nvidia.dali.backend',), (), (('normalize_argument', 'TensorGPU.__init__'), ('normalize_argument', 'TensorListGPU.__init__')), {'more': True}),
    ('CG020', 'cudaguard.features.array_interface.rules:RULES', 'automatic', ('numba.cuda.cudadrv.devicearray',), (), (('fix_array_interface', 'DeviceNDArrayBase'),), {'more': True}),
    ('CG028', 'cudaguard.features.cuda_graphs.rules:RULES', 'opt-in', ('torch',), (), (('disable_cuda_graphs', True),), {}),
    ('CG033', 'cudaguard.features.gpu_architectures.rules:RULES', 'automatic', ('torch',), (), (('preload_newer_nvrtc', True),), {'platform': 'linux', 'driver': True}),
    ('CG048', 'cudaguard.features.extensions.rules:RULES', 'report', ('torchcodec',), (), (), {'more': True}),
    ('CG049', 'cudaguard.features.extensions.rules:RULES', 'report', ('isaacsim', 'isaaclab', 'omni.isaac'), (), (), {'more': True}),
    ('CG071', 'cudaguard.features.windows_runtime.rules:RULES', 'automatic', ('torch', 'optree', 'onnxruntime', 'PyQt5', 'PyQt6', 'PySide2', 'PySide6', 'shiboken2', 'shiboken6', 'pyarrow', 'sklearn', 'wx'), (), (('load_newest_runtime', 'msvcp140.dll'),), {'platform': 'win32'}),
)

VERBS = {
    'load_local': {'opening': 'cudaguard.features.symbol_scope.repair:keep_local', 'masking': 'cudaguard.features.symbol_scope.repair:leave_global', 'late': 'cudaguard.features.symbol_scope.repair:check_libraries_before'},
    'provide_libraries': {'needing': 'cudaguard.features.import_order.repair:import_provider'},
    'preload': {'before': 'cudaguard.features.import_order.repair:preload', 'late': 'cudaguard.features.import_order.repair:check_already_loaded'},
    'set_for_windows': {'after': 'cudaguard.features.import_order.qt_plugins:set_for_windows'},
    'preload_newest': {'before': 'cudaguard.features.import_order.newest:preload_newest', 'first': 'cudaguard.features.import_order.newest:preload_newest'},
    'preload_hidden': {'before': 'cudaguard.features.import_order.newest:preload_hidden'},
    'fetch_installed': {'lacking': 'cudaguard.features.import_order.repair:load_installed'},
    'preload_needed': {'choosing': 'cudaguard.features.import_order.newest:preload_needed'},
    'preload_static_tls': {'crowding': 'cudaguard.features.import_order.newest:preload_static_tls'},
    'set_env': {'before': 'cudaguard.features.cuda_init.repair:set_env'},
    'replace_module': {'before': 'cudaguard.features.cuda_init.repair:replace_module'},
    'normalize_argument': {'after': 'cudaguard.features.array_interface.repair:replace_attributes'},
    'fix_array_interface': {'after': 'cudaguard.features.array_interface.repair:replace_attributes'},
    'disable_cuda_graphs': {'after': 'cudaguard.features.cuda_graphs.functions:replace_compile'},
    'clone_outputs': {'after': 'cudaguard.features.cuda_graphs.functions:replace_compile'},
    'preload_newer_nvrtc': {'before': 'cudaguard.features.gpu_architectures.repair:preload_newer_nvrtc'},
    'load_newest_runtime': {'before': 'cudaguard.features.windows_runtime.repair:load_newest', 'first': 'cudaguard.features.windows_runtime.repair:load_newest', 'late': 'cudaguard.features.windows_runtime.repair:load_newest'},
}

CATEGORIES = {
    **dict.fromkeys("load_local".split(), 'SymbolScopeWarning'),
    **dict.fromkeys("provide_libraries preload set_for_windows preload_newest preload_hidden fetch_installed preload_needed preload_static_tls set_env replace_module preload_newer_nvrtc load_newest_runtime".split(), 'ImportOrderWarning'),
    **dict.fromkeys("normalize_argument fix_array_interface".split(), 'ArrayInterfaceWarning'),
    **dict.fromkeys("disable_cuda_graphs clone_outputs".split(), 'GraphWarning'),
}

TABLES = (
    'cudaguard.features.symbol_scope.rules:VERBS',
    'cudaguard.features.import_order.rules:VERBS',
    'cudaguard.features.cuda_init.rules:VERBS',
    'cudaguard.features.array_interface.rules:VERBS',
    'cudaguard.features.cuda_graphs.rules:VERBS',
)

DETECTORS = (
    ('cudaguard.features.symbol_scope.detector:ScopeDetector', ('begin', 'mapping', 'mapped', 'forget')),
    ('cudaguard.features.symbol_scope.cxx_runtimes:RuntimeDetector', ('runtime_exported', 'closer_look')),
    ('cudaguard.features.import_order.newest:SearchPathDetector', ('not_found',)),
    ('cudaguard.features.duplicate_libraries.detector:DuplicateDetector', ('begin', 'mapped', 'imported:jax', 'imported:onnxruntime', 'imported:paddle', 'imported:tensorflow', 'imported:torch')),
    ('cudaguard.features.duplicate_libraries.soname_conflicts:SonameDetector', ('closer_look',)),
    ('cudaguard.features.cuda_init.detector:CudaDetector', ('begin', 'before_load', 'around_import', 'mapped', 'loaded', 'ctypes_comes', 'error_passes', 'forget', 'imported:accelerate.launchers', 'imported:lightning.fabric.strategies.launchers.multiprocessing', 'imported:lightning_fabric.strategies.launchers.multiprocessing', 'imported:distributed.comm.ucx', 'imported:distributed_ucxx.ucxx', 'imported:torch.cuda.memory')),
    ('cudaguard.features.gpu_architectures.detector:ArchitectureDetector', ('begin', 'mapped', 'cuda_initialized', 'forget', 'imported:torch')),
    ('cudaguard.features.extensions.detector:ExtensionDetector', ('around_import', 'truncated', 'error_leaves', 'ended', 'first_import', 'thread_changed', 'load_failed', 'refused', 'error_passes', 'goes_on', 'forget')),
)

PREREQUISITES = {
    'context': 'cudaguard.features.cuda_init.repair:create_if_allowed',
}

INITIALIZERS = "cugraph deepspeed flash_attn flashinfer quack sam2 sglang torch torch_scatter transformer_engine vllm xformers apex bitsandbytes causal_conv1d cucim cudf cuml cupy cuspatial detectron2 dgl diff_gaussian_rasterization faiss fvdb gsplat horovod jax kaolin mamba_ssm mmcv numba.cuda nvdiffrast nvidia.dali onnxruntime open3d paddle pycuda.autoinit pycuda.autoprimaryctx pylibraft pytorch3d rmm spconv taichi tensorflow tensorrt tinycudann torch_cluster torch_sparse torchaudio torchvision triton unsloth warp transformer_engine.jax transformer_engine.pytorch cuda.bindings.driver cuda.bindings.runtime pycuda.driver accelerate.launchers lightning.fabric.strategies.launchers.multiprocessing lightning_fabric.strategies.launchers.multiprocessing distributed.comm.ucx distributed_ucxx.ucxx torch.cuda.memory".split()

BUILT_WITHOUT = {
    'torch': ('version.py', '\ncuda: Optional[str] = None\n'),
}

KNOWN_ERRORS = (
    'cudaguard.core:known_errors.ini',
    'cudaguard.features.symbol_scope:known_errors.ini',
    'cudaguard.features.import_order:known_errors.ini',
    'cudaguard.features.duplicate_libraries:known_errors.ini',
    'cudaguard.features.cuda_init.known_errors:EXPLAINER',
    'cudaguard.features.array_interface:known_errors.ini',
    'cudaguard.features.cuda_graphs.findings:EXPLAINER',
    'cudaguard.features.gpu_architectures.checks:EXPLAINER',
    'cudaguard.features.builds:known_errors.ini',
    'cudaguard.features.extensions.known_errors:EXPLAINER',
)

FINDINGS = "cudaguard.core.findings cudaguard.features.symbol_scope.findings cudaguard.features.import_order.findings cudaguard.features.duplicate_libraries.findings cudaguard.features.cuda_init.findings cudaguard.features.array_interface.findings cudaguard.features.cuda_graphs.findings cudaguard.features.gpu_architectures.findings cudaguard.features.extensions.findings cudaguard.features.windows_runtime.findings".split()

CHECKS = {
    'CG902': 'cudaguard.features.extensions.checks:EXTENSIONS',
    'CG903': 'cudaguard.features.duplicate_libraries.checks:SHARED_LIBRARIES',
    'CG905': 'cudaguard.features.duplicate_libraries.checks:DISTRIBUTIONS',
    'CG918': 'cudaguard.features.gpu_architectures.checks:GPU_CODE',
    'CG920': 'cudaguard.features.windows_runtime.checks:WINDOWS_DLLS',
}

IDS = {
    **dict.fromkeys("CG700 CG701 CG702 CG704 CG705 CG706 CG707 CG708 CG709 CG710 CG711 CG712 CG713 CG714 CG715 CG717 CG718 CG719 CG720 CG721 CG722 CG723 CG724 CG725 CG726 CG727 CG728 CG729 CG730 CG731 CG732 CG733 CG734 CG736 CG738 CG739 CG740 CG741 CG742 CG743 CG744 CG745 CG746 CG747 CG748 CG749 CG750 CG751 CG752 CG753 CG754 CG755 CG756 CG757 CG758 CG759 CG760 CG761 CG762 CG763 CG764 CG765 CG766 CG767 CG768 CG769 CG770 CG771 CG772 CG773 CG774 CG775 CG776 CG777 CG778 CG779 CG780 CG781 CG782 CG783 CG784 CG785 CG786 CG787 CG788 CG789 CG790 CG791 CG792 CG793 CG794 CG795 CG796 CG797 CG798 CG800 CG802 CG825 CG828 CG829 CG830 CG836 CG837 CG838 CG839 CG844 CG845 CG846 CG847 CG848 CG849 CG850 CG856 CG857 CG858 CG859 CG860 CG863 CG864 CG865 CG866 CG867 CG868 CG869 CG870 CG871 CG872 CG873 CG874 CG875 CG876 CG877 CG878 CG880 CG881 CG882 CG883 CG884 CG886 CG897 CG898 CG899".split(), ''),
    **dict.fromkeys("CG801 CG804 CG811 CG823 CG824 CG842 CG843".split(), 'ImportOrderWarning'),
    **dict.fromkeys("CG805 CG806 CG807 CG893 CG894".split(), 'CudaGuardWarning'),
    **dict.fromkeys("CG809 CG812 CG813".split(), 'SymbolScopeWarning'),
    **dict.fromkeys("CG814 CG815 CG816 CG817 CG822".split(), 'ContextWarning'),
    **dict.fromkeys("CG818".split(), 'ForkWarning'),
    **dict.fromkeys("CG819 CG820".split(), 'LateEnvironmentWarning'),
    **dict.fromkeys("CG821 CG827 CG840 CG841".split(), 'ExtensionWarning'),
    **dict.fromkeys("CG831 CG833 CG834 CG835".split(), 'ArrayInterfaceWarning'),
    **dict.fromkeys("CG851".split(), 'GraphWarning'),
}
