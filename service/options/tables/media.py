"""Media, multimodal input and diffusion. Known by name; refused: this worker serves text tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.options.kinds import Boolean, Choice, Integer, Kind, Number, Text, Words
from service.options.option import Group, Option, Refusal, flag_of

if TYPE_CHECKING:
    from service.options.values import Value

_MEDIA = Refusal(needs="a multimodal engine", instead="serve such models with the upstream worker")
_DIFFUSION = Refusal(needs="a diffusion engine", instead="serve such models with the upstream worker")


def _media(name: str, kind: Kind, default: Value, text: str, env: str = "") -> Option:
    return Option(
        name=name,
        flag=flag_of(name),
        env=env or f"DYN_TRTLLM_{name.upper()}",
        kind=kind,
        default=default,
        group=Group.MEDIA,
        help=text,
        refusal=_MEDIA,
    )


def _diffusion(name: str, kind: Kind, default: Value, text: str, instead: str = "") -> Option:
    return Option(
        name=name,
        flag=flag_of(name),
        env=f"DYN_TRTLLM_{name.upper()}",
        kind=kind,
        default=default,
        group=Group.DIFFUSION,
        help=text,
        refusal=Refusal(needs=_DIFFUSION.needs, instead=instead or _DIFFUSION.instead),
    )


_MODALITIES = ("text", "multimodal", "video_diffusion", "image_diffusion")
_QUANTISATIONS = ("FP8", "FP8_BLOCK_SCALES", "NVFP4", "W4A16_AWQ", "W4A8_AWQ", "W8A8_SQ_PER_CHANNEL")
_SIZE = Integer(1, 65536)

MEDIA: tuple[Option, ...] = (
    _media("enable_multimodal", Boolean(), False, "Accept images, audio and video."),
    _media("modality", Choice(_MODALITIES), "text", "What the model works on."),
    _media(
        "encode_endpoint", Text("dyn://namespace.component.endpoint"), None, "Endpoint of an encode worker."
    ),
    _media("allowed_local_media_path", Text("a folder"), None, "Folder local media may be read from."),
    _media("max_file_size_mb", Integer(1, 1 << 20), 50, "Largest download of media, in MB."),
    _media("frontend_decoding", Boolean(), False, "Media are decoded by the frontend."),
    _media(
        "multimodal_embedding_cache_capacity_gb",
        Number(0, 65536),
        0.0,
        "Size of the embedding cache, in GB.",
        env="DYN_MULTIMODAL_EMBEDDING_CACHE_CAPACITY_GB",
    ),
    _media(
        "multimodal_embedding_cache_publisher",
        Boolean(),
        False,
        "Publish the state of the embedding cache.",
        env="DYN_MULTIMODAL_EMBEDDING_CACHE_PUBLISHER",
    ),
    _media(
        "output_modalities",
        Words(("text", "image", "audio", "video")),
        ("text",),
        "What the model produces.",
        env="DYN_OUTPUT_MODALITIES",
    ),
    _media(
        "media_output_fs_url",
        Text("a file:// or s3:// URL", r"(file|s3)://\S+", optional=False),
        "file:///tmp/dynamo_media",
        "Where produced media are stored.",
        env="DYN_MEDIA_OUTPUT_FS_URL",
    ),
    _media(
        "media_output_http_url",
        Text("a URL", r"\S+"),
        None,
        "Prefix of the URLs of produced media in answers.",
        env="DYN_MEDIA_OUTPUT_HTTP_URL",
    ),
)

DIFFUSION: tuple[Option, ...] = (
    _diffusion("quant_algo", Choice(_QUANTISATIONS), None, "Quantise weights while loading."),
    _diffusion("quant_dynamic", Boolean(), True, "Quantise BF16 weights while loading."),
    _diffusion("enable_teacache", Boolean(), False, "TeaCache."),
    _diffusion("teacache_use_ret_steps", Boolean(), True, "Retention steps of TeaCache."),
    _diffusion("teacache_thresh", Number(0, 1000), 0.2, "Threshold of TeaCache."),
    _diffusion(
        "torch_dtype",
        Choice(("bfloat16", "float16", "float32")),
        "bfloat16",
        "Number format of diffusion weights.",
        instead="for the engine torch use --dtype",
    ),
    _diffusion("revision", Text("a branch, tag or commit"), None, "Revision of the model on the hub."),
    _diffusion("disable_torch_compile", Boolean(), False, "No torch.compile."),
    _diffusion("enable_fullgraph", Boolean(), False, "Compile as one graph."),
    _diffusion("enable_cuda_graph", Boolean(), False, "CUDA graphs."),
    _diffusion("attn_backend", Choice(("VANILLA", "TRTLLM")), "VANILLA", "Attention kernels."),
    _diffusion("dit_ulysses_size", _SIZE, 1, "Ulysses parallel size."),
    _diffusion("dit_ring_size", _SIZE, 1, "Ring parallel size."),
    _diffusion("dit_cfg_size", _SIZE, 1, "CFG parallel size."),
    _diffusion("enable_layerwise_nvtx_marker", Boolean(), False, "NVTX markers for each layer."),
    _diffusion("skip_warmup", Boolean(), False, "No warm-up."),
    _diffusion("default_height", _SIZE, 480, "Height in pixels."),
    _diffusion("default_width", _SIZE, 832, "Width in pixels."),
    _diffusion("default_num_inference_steps", _SIZE, 50, "Denoising steps."),
    _diffusion("default_guidance_scale", Number(0, 1000), 5.0, "Guidance scale."),
    _diffusion("default_num_frames", _SIZE, 81, "Frames of a video."),
    _diffusion("default_num_images_per_prompt", _SIZE, 1, "Images of one prompt."),
)
