"""Small networks of kinds that the packages of the sweep lack: sound, text, volumes, and what exporters make awkward.

Each function makes one with random weights, in PyTorch. Where a design is a paper's, it is named; sizes are smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn


class Lambda(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *values: Tensor) -> Any:
        """What the function returns."""
        return self.function(*values)


class Residual(nn.Module):
    """The sum of what layers make of a value, and of the value itself or what a shortcut makes of it."""

    def __init__(self, layers: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.layers, self.shortcut = layers, shortcut or nn.Identity()

    def forward(self, value: Tensor) -> Tensor:
        """The sum."""
        return self.layers(value) + self.shortcut(value)


def lenet() -> nn.Module:
    """LeCun et al. 1998, with ReLU and the largest of each window."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def _double(inputs: int, outputs: int) -> nn.Sequential:
    first = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*first, nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class _UNet(nn.Module):
    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.first, self.pool = _double(3, widths[0]), nn.MaxPool2d(2)
        self.down = nn.ModuleList(_double(*pair) for pair in pairs)
        self.widen = nn.ModuleList(nn.ConvTranspose2d(after, before, 2, stride=2) for before, after in pairs)
        self.up = nn.ModuleList(_double(2 * before, before) for before, _ in pairs)
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        value, kept = self.first(image), []
        for down in self.down:
            kept.append(value)
            value = down(self.pool(value))
        for widen, up, other in list(zip(self.widen, self.up, kept, strict=True))[::-1]:
            value = up(torch.cat([other, widen(value)], 1))
        return self.last(value)


def unet() -> nn.Module:
    """Ronneberger et al. 2015."""
    return _UNet([16, 32, 64, 128])


def espcn() -> nn.Module:
    """Super-resolution by pixels that are shuffled; Shi et al. 2016."""
    layers = [nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()]
    return nn.Sequential(*layers, nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3))


def generator() -> nn.Module:
    """Transposed convolutions, as DCGAN has them; Radford et al. 2015."""
    widths = [64, 128, 64, 32]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.ConvTranspose2d(before, after, 4, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1), nn.Tanh())


def keyword_conv1d() -> nn.Module:
    """Residual convolutions over time, as TC-ResNet has them; Choi et al. 2019."""
    layers: list[nn.Module] = [nn.Conv1d(40, 16, 3, padding=1, bias=False)]
    for before, after in ((16, 24), (24, 32), (32, 48)):
        block = [nn.Conv1d(before, after, 9, 2, 4, bias=False), nn.BatchNorm1d(after), nn.ReLU()]
        block += [nn.Conv1d(after, after, 9, 1, 4, bias=False), nn.BatchNorm1d(after)]
        shortcut = nn.Sequential(nn.Conv1d(before, after, 1, 2, bias=False), nn.BatchNorm1d(after))
        layers += [Residual(nn.Sequential(*block), shortcut), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, 12))


def keyword_ds_cnn() -> nn.Module:
    """Depthwise convolutions on a spectrogram; Zhang et al. 2017."""
    layers = [nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.BatchNorm2d(64), nn.ReLU()]
        layers += [nn.Conv2d(64, 64, 1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))


def keyword_m5() -> nn.Module:
    """Convolutions on samples themselves; Dai et al. 2016."""
    layers: list[nn.Module] = []
    for before, after, kernel, stride in ((1, 32, 80, 4), (32, 32, 3, 1), (32, 64, 3, 1), (64, 64, 3, 1)):
        layers += [nn.Conv1d(before, after, kernel, stride), nn.BatchNorm1d(after), nn.ReLU(), nn.MaxPool1d(4)]
    return nn.Sequential(*layers, Lambda(lambda value: value.mean(-1)), nn.Linear(64, 35), nn.LogSoftmax(-1))


def tcn() -> nn.Module:
    """Causal convolutions with growing dilation; Bai et al. 2018."""
    layers: list[nn.Module] = [nn.Conv1d(40, 64, 1)]
    for dilation in (1, 2, 4, 8, 16):
        block: list[nn.Module] = []
        for _ in range(2):
            pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
            block += [pad, nn.Conv1d(64, 64, 3, dilation=dilation), nn.BatchNorm1d(64), nn.ReLU()]
        layers += [Residual(nn.Sequential(*block)), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv1d(64, 20, 1))


class _Gated(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.filter, self.gate = (
            nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation) for _ in range(2)
        )
        self.last = nn.Conv1d(channels, channels, 1)

    def forward(self, value: Tensor) -> Tensor:
        return value + self.last(torch.tanh(self.filter(value)) * torch.sigmoid(self.gate(value)))


def wavenet() -> nn.Module:
    """Gated convolutions with dilation, not causal; van den Oord et al. 2016."""
    layers = [_Gated(32, 2**index) for index in range(8)]
    return nn.Sequential(nn.Conv1d(1, 32, 1), *layers, nn.ReLU(), nn.Conv1d(32, 1, 1))


def vocoder() -> nn.Module:
    """From spectrogram to samples by transposed convolutions over time, as HiFi-GAN has them; Kong et al. 2020."""
    layers: list[nn.Module] = [nn.Conv1d(80, 64, 7, padding=3)]
    for before, after, factor in ((64, 32, 8), (32, 16, 8), (16, 8, 4)):
        layers += [nn.LeakyReLU(0.1), nn.ConvTranspose1d(before, after, 2 * factor, factor, factor // 2)]
        for dilation in (1, 3, 5):
            inner = nn.Conv1d(after, after, 3, padding=dilation, dilation=dilation)
            layers += [Residual(nn.Sequential(nn.LeakyReLU(0.1), inner))]
    return nn.Sequential(*layers, nn.LeakyReLU(0.1), nn.Conv1d(8, 1, 7, padding=3), nn.Tanh())


class _MelSpectrogram(nn.Module):
    """A discrete Fourier transform as a convolution with sines and cosines, then bands of frequencies, and logs."""

    def __init__(self, size: int = 400, hop: int = 160, bands: int = 80) -> None:
        super().__init__()
        angles = 2 * torch.pi * torch.outer(torch.arange(size // 2 + 1), torch.arange(size)) / size
        waves = torch.cat([angles.cos(), angles.sin()]) * torch.hann_window(size)
        self.register_buffer("waves", waves[:, None])
        self.register_buffer("bands", torch.rand(bands, size // 2 + 1))
        self.hop = hop

    def forward(self, samples: Tensor) -> Tensor:
        real, imaginary = nn.functional.conv1d(samples[:, None], self.waves, stride=self.hop).chunk(2, 1)
        return torch.log10(torch.clamp(self.bands @ (real**2 + imaginary**2), min=1e-10))


def mel_spectrogram() -> nn.Module:
    """What speech networks begin with, as a network."""
    return _MelSpectrogram()


def stft() -> nn.Module:
    """A Fourier transform by the operator of that name."""
    window = torch.hann_window(400)

    def power(samples: Tensor) -> Tensor:
        found = torch.stft(samples, 400, 160, window=window, center=False, return_complex=True)
        return torch.view_as_real(found).square().sum(-1)

    return Lambda(power)


def wake_word() -> nn.Module:
    """Layers without convolutions on 16 embeddings of 96 values, as openWakeWord has them."""
    layers = [nn.Flatten(), nn.Linear(16 * 96, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 128)]
    return nn.Sequential(*layers, nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())


class _VoiceActivity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(1, 64, 256, 64, 64), nn.ReLU(), nn.Conv1d(64, 64, 3, 2, 1), nn.ReLU())
        self.cell, self.last = nn.LSTM(64, 64, batch_first=True), nn.Linear(64, 1)

    def forward(self, samples: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        value, (hidden, cell) = self.cell(self.first(samples[:, None]).transpose(1, 2), (state[:1], state[1:]))
        return torch.sigmoid(self.last(value[:, -1])), torch.cat([hidden, cell])


def voice_activity() -> nn.Module:
    """Convolutions over samples and an LSTM, whose state is input and output."""
    return _VoiceActivity()


class _Recurrent(nn.Module):
    """Recurrent layers and what each step's outputs are made into."""

    def __init__(self, layers: nn.RNNBase, outputs: int) -> None:
        super().__init__()
        self.layers = layers
        self.last = nn.Linear(layers.hidden_size * (2 if layers.bidirectional else 1), outputs)

    def forward(self, value: Tensor) -> Tensor:
        return self.last(self.layers(value)[0])


def speech_lstm() -> nn.Module:
    """Two layers in one direction."""
    return _Recurrent(nn.LSTM(40, 128, 2, batch_first=True), 29)


def speech_bilstm() -> nn.Module:
    """Two layers in both directions."""
    return _Recurrent(nn.LSTM(40, 96, 2, batch_first=True, bidirectional=True), 29)


def speech_gru() -> nn.Module:
    """Two layers in one direction."""
    return _Recurrent(nn.GRU(40, 128, 2, batch_first=True), 29)


def speech_rnn() -> nn.Module:
    """One layer whose activation is tanh."""
    return _Recurrent(nn.RNN(40, 128, batch_first=True), 29)


class _Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.LSTM(40, 128, batch_first=True), nn.Linear(128, 29)

    def forward(self, value: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, (hidden, cell) = self.cell(value, (hidden, cell))
        return self.last(value), hidden, cell


def lstm_step() -> nn.Module:
    """One step of an LSTM, whose state is input and output."""
    return _Step()


def text_crnn() -> nn.Module:
    """Convolutions, then an LSTM along the line; Shi et al. 2015."""
    layers: list[nn.Module] = []
    for before, after, pool in ((1, 32, (2, 2)), (32, 64, (2, 2)), (64, 128, (2, 1)), (128, 128, (4, 1))):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(pool)]
    along = Lambda(lambda value: value.squeeze(2).permute(0, 2, 1))
    return nn.Sequential(*layers, along, _Recurrent(nn.LSTM(128, 96, batch_first=True, bidirectional=True), 37))


def text_svtr() -> nn.Module:
    """Convolutions, attention along the line and 6625 characters, as PP-OCR's recognition has them."""
    layers: list[nn.Module] = []
    for before, after, stride in ((3, 32, 2), (32, 64, 2), (64, 120, (2, 1)), (120, 120, (2, 1)), (120, 120, (3, 1))):
        layers += [nn.Conv2d(before, after, 3, stride, 1), nn.BatchNorm2d(after), nn.Hardswish()]
    along = Lambda(lambda value: value.flatten(2).transpose(1, 2))
    return nn.Sequential(*layers, along, _attention(120, 4, 2), nn.Linear(120, 6625), nn.Softmax(-1))


def conv3d() -> nn.Module:
    """Convolutions over time and image; Tran et al. 2014."""
    layers: list[nn.Module] = []
    for before, after, pool in ((3, 16, (1, 2, 2)), (16, 32, 2), (32, 64, 2)):
        layers += [nn.Conv3d(before, after, 3, padding=1), nn.BatchNorm3d(after), nn.ReLU(), nn.MaxPool3d(pool)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, 10))


def point_net() -> nn.Module:
    """Layers on each point, then the largest over all points; Qi et al. 2016."""
    layers: list[nn.Module] = []
    for before, after in ((3, 64), (64, 128), (128, 512)):
        layers += [nn.Conv1d(before, after, 1), nn.BatchNorm1d(after), nn.ReLU()]
    largest = Lambda(lambda value: value.amax(-1))
    return nn.Sequential(*layers, largest, nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 40))


def autoencoder() -> nn.Module:
    """Layers of 128 with 8 in the middle, as MLPerf Tiny's anomaly detection has them."""
    sizes = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, 640))


def mlp_mixer_head() -> nn.Module:
    """A product over tokens, one over channels, and the mean; Tolstikhin et al. 2021."""
    turn = Lambda(lambda value: value.transpose(1, 2))
    tokens = nn.Sequential(nn.LayerNorm(192), turn, nn.Linear(196, 96), nn.GELU(), nn.Linear(96, 196), turn)
    channels = nn.Sequential(nn.LayerNorm(192), nn.Linear(192, 768), nn.GELU(), nn.Linear(768, 192))
    return nn.Sequential(Residual(tokens), Residual(channels), Lambda(lambda value: value.mean(1)), nn.Linear(192, 10))


def grid_sample() -> nn.Module:
    """A feature map read where another input says."""
    return Lambda(lambda value, grid: nn.functional.grid_sample(value, torch.tanh(grid), align_corners=False))


def _attention(width: int, heads: int, layers: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def text_encoder() -> nn.Module:
    """Embeddings and PyTorch's own encoder layers."""
    return nn.Sequential(nn.Embedding(1000, 128), _attention(128, 4, 2), nn.Linear(128, 10))


def _of_transformers(model: str, configuration: str, field: str | tuple[str, ...] | None, **settings: Any) -> nn.Module:
    """A model of the transformers package with a configuration of its own, of whose outputs one or some are given."""
    import transformers

    made = getattr(transformers, model)(getattr(transformers, configuration)(**settings))

    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.made = made.encoder if model == "WhisperModel" else made

        def forward(self, value: Tensor) -> Tensor | tuple[Tensor, ...]:
            found = self.made(value, return_dict=True)
            return tuple(found[each] for each in field) if isinstance(field, tuple) else found[field or 0]

    return Alone()


def bert_tiny() -> nn.Module:
    """Two layers of 128, 128 tokens; Turc et al. 2019."""
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    return _of_transformers("BertModel", "BertConfig", None, **sizes)


def distilbert_small() -> nn.Module:
    """Two layers of 256; Sanh et al. 2019."""
    sizes = {"dim": 256, "n_layers": 2, "n_heads": 4, "hidden_dim": 1024}
    return _of_transformers("DistilBertModel", "DistilBertConfig", None, **sizes)


def gpt2_small() -> nn.Module:
    """Two layers of 128, no cache; Radford et al. 2019."""
    sizes = {"n_embd": 128, "n_layer": 2, "n_head": 4, "use_cache": False}
    return _of_transformers("GPT2LMHeadModel", "GPT2Config", "logits", **sizes)


def whisper_encoder() -> nn.Module:
    """The encoder of Whisper tiny: 1500 tokens of 384; Radford et al. 2022."""
    sizes = {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    return _of_transformers("WhisperModel", "WhisperConfig", None, **sizes, decoder_layers=1)


def wav2vec2_small() -> nn.Module:
    """One second of sound; narrower, and with two layers; Baevski et al. 2020."""
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
    return _of_transformers("Wav2Vec2Model", "Wav2Vec2Config", None, **sizes, conv_dim=[64] * 7)


def segformer_b0() -> nn.Module:
    """Segmentation by attention; Xie et al. 2021."""
    return _of_transformers("SegformerForSemanticSegmentation", "SegformerConfig", "logits")


def rtdetr_r18() -> nn.Module:
    """RT-DETR of 640x640 with a ResNet-18; Zhao et al. 2023."""
    from transformers import RTDetrResNetConfig

    backbone = RTDetrResNetConfig(
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    sizes = {"encoder_in_channels": [128, 256, 512], "decoder_layers": 3, "hidden_expansion": 0.5}
    return _detector("RTDetr", backbone_config=backbone, **sizes)


def dfine_n() -> nn.Module:
    """D-FINE-N of 640x640, which DEIM-N trains otherwise; Peng et al. 2024."""
    from transformers import HGNetV2Config

    backbone = HGNetV2Config(
        hidden_sizes=[64, 256, 512, 1024],
        depths=[1, 1, 2, 1],
        stem_channels=[3, 16, 16],
        stage_in_channels=[16, 64, 256, 512],
        stage_mid_channels=[16, 32, 64, 128],
        stage_out_channels=[64, 256, 512, 1024],
        stage_num_blocks=[1, 1, 2, 1],
        stage_downsample=[False, True, True, True],
        stage_light_block=[False, False, True, True],
        stage_kernel_size=[3, 3, 5, 5],
        stage_numb_of_layers=[3, 3, 3, 3],
        use_learnable_affine_block=True,
        out_features=["stage3", "stage4"],
    )
    encoder = {"encoder_in_channels": [512, 1024], "encoder_hidden_dim": 128, "encoder_ffn_dim": 512}
    encoder |= {"encode_proj_layers": [1], "feat_strides": [16, 32], "num_feature_levels": 2}
    decoder = {"decoder_in_channels": [128, 128], "decoder_ffn_dim": 512, "decoder_layers": 3, "d_model": 128}
    decoder |= {"decoder_n_points": [6, 6], "depth_mult": 0.5, "hidden_expansion": 0.34}
    return _detector("DFine", backbone_config=backbone, **encoder, **decoder)


def _detector(family: str, **settings: Any) -> nn.Module:
    settings |= {"num_labels": 80, "anchor_image_size": [640, 640]}
    fields = "logits", "pred_boxes"
    made = _of_transformers(f"{family}ForObjectDetection", f"{family}Config", fields, **settings)
    # What training begins with gives all places the same score but for rounding, and none of 300 is chosen for one.
    for parameter in made.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return made
