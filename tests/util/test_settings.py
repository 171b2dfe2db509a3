"""Every option of `jax.config` works, or is accepted for a reason, and is listed in
`docs/settings.md`; the effects of the cheap ones."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.util import config as C
from weft._engine.util.config import Override, config

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()

OPTIONS = """
    allow_f16_reductions array_garbage_collection_guard auto_pcast backend_target bcoo_cusparse_lowering
    captured_constants_report_frames captured_constants_warn_bytes check_proxy_envs check_static_indices check_tracer_leaks check_vma
    compilation_cache_check_contents compilation_cache_dir compilation_cache_expect_pgle compilation_cache_include_metadata_in_key
    compilation_cache_max_size compiler_detailed_logging_min_ops compiler_enable_remat_pass cpu_collectives_implementation
    cpu_enable_async_dispatch cpu_get_global_topology_timeout_minutes cpu_get_local_topology_timeout_minutes
    cross_host_transfer_socket_address cross_host_transfer_timeout_seconds cross_host_transfer_transfer_size
    cross_host_transport_addresses cuda_visible_devices custom_vjp3 debug_infs debug_key_reuse debug_leaked_clients_on_clear_backends
    debug_log_modules debug_nans default_device default_matmul_precision default_prng_impl disable_bwd_checks disable_jit
    disable_most_optimizations disable_vmap_shmap_error disallow_mesh_context_manager distributed_debug dump_ir_modes dump_ir_to
    eager_constant_folding embedded_constants_max_bytes enable_checks enable_compilation_cache enable_custom_prng enable_pgle
    enable_preemption_service enable_recoverability enable_x64 error_checking_behavior_divide error_checking_behavior_nan
    error_checking_behavior_oob exec_time_optimization_effort experimental_unsafe_xla_runtime_errors explain_cache_misses
    explicit_x64_dtypes export_calling_convention_version export_ignore_forward_compatibility force_dcn_cross_host_transfers
    high_dynamic_range_gumbel hlo_source_file_canonicalization_regex include_debug_info_in_dumps include_full_tracebacks_in_locations
    jax2tf_associative_scan_reductions jax2tf_default_native_serialization legacy_prng_key log_checkpoint_residuals log_compiles
    logging_level memory_fitting_effort memory_fitting_level mock_gpu_topology mock_num_gpu_processes mosaic_allow_hlo
    mutable_array_checks no_execution no_tracing num_cpu_devices numpy_dtype_promotion numpy_rank_promotion oneapi_visible_devices
    optimization_level pallas_enable_debug_checks pallas_poison_buffers pallas_use_mosaic_gpu pallas_verbose_errors
    persistent_cache_enable_xla_caches persistent_cache_min_compile_time_secs persistent_cache_min_entry_size_bytes
    pgle_aggregation_percentile pgle_profiling_runs pjrt_client_create_options platform_name platforms pprint_use_color
    ragged_dot_use_gpu_pallas_triton_lowering ragged_dot_use_ragged_dot_instruction raise_persistent_cache_errors random_seed_offset
    refs_to_pins remat3 remove_custom_partitioning_ptr_from_cache_key remove_size_one_mesh_axis_from_type rocm_visible_devices scan3
    send_traceback_to_runtime serialization_version share_binary_between_hosts share_binary_between_hosts_timeout_ms softmax_custom_jvp
    sort_devices_by_process_index source_url_schema thread_guard threefry_gpu_kernel_lowering threefry_partitionable traceback_filtering
    traceback_in_locations_limit tracer_error_num_traceback_frames transfer_guard transfer_guard_device_to_device
    transfer_guard_device_to_host transfer_guard_host_to_device use_direct_linearize use_emit_pipeline_primitive use_magma
    use_shardy_partitioner use_simplified_jaxpr_constants xla_backend xla_profile_version
""".split()


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_accepted_and_documented(name):
    assert C.resolve(name) == C.resolve(f"jax_{name}") == name
    config.update(f"jax_{name}", config.read(name))
    assert f"`{name}`" in PAGE
    doc = next(s.doc for s in C.known_settings() if s.name == name)
    assert len(doc) > 20 and "nothing depends on it" not in doc


def test_the_page_names_no_setting_that_is_not():
    assert set(re.findall(r"^\| `(\w+)`", PAGE, re.M)) <= {s.name for s in C.known_settings()}


@pytest.mark.oracle
def test_the_peer_has_these_options():
    code = "import jax; print(*(name.removeprefix('jax_') for name in jax.config.values))"
    done = subprocess.run(
        [os.environ["WEFT_ORACLE_PYTHON"], "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": "", "JAX_PLATFORMS": "cpu"},
    )
    assert set(done.stdout.split()) == set(OPTIONS)


def test_no_tracing():
    f = weft.jit(lambda x: x * 3)
    f(wnp.ones(3))
    with weft.no_tracing():
        assert np.asarray(f(wnp.ones(3))).sum() == 9
        with pytest.raises(RuntimeError, match="no_tracing"):
            f(wnp.ones(4))


def test_no_execution():
    f = weft.jit(lambda x: x * 3)
    x = f(wnp.ones(3))
    config.update("no_execution", True)
    try:
        for _ in range(3):
            with pytest.raises(RuntimeError, match=r"jit.* would run, but config.no_execution"):
                f(x)
        compiled = f.lower(x).compile()
        assert weft.make_jaxpr(f)(x).out_avals[0].shape == (3,)
    finally:
        config.update("no_execution", False)
    assert compiled(x).sum() == f(x).sum() == 27


def test_seeds_have_an_offset():
    expected = [weft.random.key_data(weft.random.key(8)).tolist()] * 2 + [
        weft.random.PRNGKey(-1).tolist()
    ]
    with Override(random_seed_offset=5):
        results = [
            weft.random.key_data(weft.random.key(3)),
            weft.random.PRNGKey(np.int32(3)),
            weft.random.PRNGKey(-6),
        ]
    assert [x.tolist() for x in results] == expected


def test_large_constants_are_warned_of():
    large = np.ones(1000, np.float32)
    with (
        Override(captured_constants_warn_bytes=100),
        pytest.warns(UserWarning, match=r"jit\(add_large\) closes over arrays of 4000 bytes"),
    ):

        def add_large(x):
            return x + large

        weft.jit(add_large)(1.0)
    with (
        Override(captured_constants_warn_bytes=4000),
        pytest.warns(UserWarning, match="closes over arrays of 4000 bytes"),
    ):
        weft.jit(lambda x: x + large)(1.0)
    for silent in (4001, -1):
        with Override(captured_constants_warn_bytes=silent):
            weft.jit(lambda x: x + large)(1.0)


def test_meshes_as_context_managers_can_be_refused():
    mesh = weft.make_mesh((8,), ("d",))
    with Override(disallow_mesh_context_manager=True):
        with pytest.raises(RuntimeError, match="Use set_mesh"), mesh:
            pass
        with weft.set_mesh(mesh):
            pass
