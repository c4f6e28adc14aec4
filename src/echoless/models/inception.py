"""Which network gives the features of published FIDs? Inception-v3 as released in 2015 (arXiv:1512.00567).

It differs from the one in today's libraries: averages leave the padding out, its last block pools by maximum, and it
knows 1008 classes. Names of the weights are those of the file that FID tools in PyTorch share. No weights come with it.

Shape suffixes: B batch, C channels, H and W height and width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIDE, FEATURES, CLASSES = 299, 2048, 1008


class BasicConv2d(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int | tuple[int, int], stride: int = 1) -> None:
        super().__init__()
        rows, columns = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (rows // 2, columns // 2) if stride == 1 else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x_BCHW)))


def _unpadded(inputs: int, outputs: int, kernel: int) -> BasicConv2d:
    layer = BasicConv2d(inputs, outputs, kernel)
    layer.conv.padding = (0, 0)
    return layer


def _average(x_BCHW: Tensor) -> Tensor:
    return F.avg_pool2d(x_BCHW, 3, stride=1, padding=1, count_include_pad=False)


class InceptionA(nn.Module):
    """Figure 5 of the paper."""

    def __init__(self, inputs: int, pooled: int) -> None:
        super().__init__()
        self.branch1x1 = BasicConv2d(inputs, 64, 1)
        self.branch5x5_1 = BasicConv2d(inputs, 48, 1)
        self.branch5x5_2 = BasicConv2d(48, 64, 5)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 64, 1)
        self.branch3x3dbl_2 = BasicConv2d(64, 96, 3)
        self.branch3x3dbl_3 = BasicConv2d(96, 96, 3)
        self.branch_pool = BasicConv2d(inputs, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        five = self.branch5x5_2(self.branch5x5_1(x))
        three = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch1x1(x), five, three, self.branch_pool(_average(x))], dim=1)


class InceptionB(nn.Module):
    """Halves the grid: 35 to 17."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3 = BasicConv2d(inputs, 384, 3, stride=2)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 64, 1)
        self.branch3x3dbl_2 = BasicConv2d(64, 96, 3)
        self.branch3x3dbl_3 = BasicConv2d(96, 96, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), double, F.max_pool2d(x, 3, stride=2)], dim=1)


class InceptionC(nn.Module):
    """Figure 6 of the paper: seven in a row, seven in a column."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.branch1x1 = BasicConv2d(inputs, 192, 1)
        self.branch7x7_1 = BasicConv2d(inputs, width, 1)
        self.branch7x7_2 = BasicConv2d(width, width, (1, 7))
        self.branch7x7_3 = BasicConv2d(width, 192, (7, 1))
        self.branch7x7dbl_1 = BasicConv2d(inputs, width, 1)
        self.branch7x7dbl_2 = BasicConv2d(width, width, (7, 1))
        self.branch7x7dbl_3 = BasicConv2d(width, width, (1, 7))
        self.branch7x7dbl_4 = BasicConv2d(width, width, (7, 1))
        self.branch7x7dbl_5 = BasicConv2d(width, 192, (1, 7))
        self.branch_pool = BasicConv2d(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        seven = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return torch.cat([self.branch1x1(x), seven, double, self.branch_pool(_average(x))], dim=1)


class InceptionD(nn.Module):
    """Halves the grid: 17 to 8."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3_1 = BasicConv2d(inputs, 192, 1)
        self.branch3x3_2 = BasicConv2d(192, 320, 3, stride=2)
        self.branch7x7x3_1 = BasicConv2d(inputs, 192, 1)
        self.branch7x7x3_2 = BasicConv2d(192, 192, (1, 7))
        self.branch7x7x3_3 = BasicConv2d(192, 192, (7, 1))
        self.branch7x7x3_4 = BasicConv2d(192, 192, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_2(self.branch3x3_1(x))
        seven = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return torch.cat([three, seven, F.max_pool2d(x, 3, stride=2)], dim=1)


class InceptionE(nn.Module):
    """Figure 7 of the paper; the last one pools by maximum."""

    def __init__(self, inputs: int, last: bool = False) -> None:
        super().__init__()
        self.last = last
        self.branch1x1 = BasicConv2d(inputs, 320, 1)
        self.branch3x3_1 = BasicConv2d(inputs, 384, 1)
        self.branch3x3_2a = BasicConv2d(384, 384, (1, 3))
        self.branch3x3_2b = BasicConv2d(384, 384, (3, 1))
        self.branch3x3dbl_1 = BasicConv2d(inputs, 448, 1)
        self.branch3x3dbl_2 = BasicConv2d(448, 384, 3)
        self.branch3x3dbl_3a = BasicConv2d(384, 384, (1, 3))
        self.branch3x3dbl_3b = BasicConv2d(384, 384, (3, 1))
        self.branch_pool = BasicConv2d(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        wide = [self.branch3x3_2a(three), self.branch3x3_2b(three)]
        wide += [self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)]
        pooled = F.max_pool2d(x, 3, stride=1, padding=1) if self.last else _average(x)
        return torch.cat([self.branch1x1(x), *wide, self.branch_pool(pooled)], dim=1)


class Inception(nn.Module):
    """`inception(images)`, in 0..1 and of any size: features (B, 2048)."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = BasicConv2d(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = _unpadded(32, 32, 3)
        self.Conv2d_2b_3x3 = BasicConv2d(32, 64, 3)
        self.Conv2d_3b_1x1 = BasicConv2d(64, 80, 1)
        self.Conv2d_4a_3x3 = _unpadded(80, 192, 3)
        self.Mixed_5b = InceptionA(192, 32)
        self.Mixed_5c = InceptionA(256, 64)
        self.Mixed_5d = InceptionA(288, 64)
        self.Mixed_6a = InceptionB(288)
        self.Mixed_6b = InceptionC(768, 128)
        self.Mixed_6c = InceptionC(768, 160)
        self.Mixed_6d = InceptionC(768, 160)
        self.Mixed_6e = InceptionC(768, 192)
        self.Mixed_7a = InceptionD(768)
        self.Mixed_7b = InceptionE(1280)
        self.Mixed_7c = InceptionE(2048, last=True)
        self.fc = nn.Linear(FEATURES, CLASSES)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        x = F.interpolate(images_BCHW, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(2 * x - 1)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, stride=2)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(F.max_pool2d(x, 3, stride=2))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        return self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x))).mean(dim=(2, 3))

    def probabilities(self, features_BD: Tensor) -> Tensor:
        """(B, 1008), without the bias of the last layer: the published Inception Score leaves it out."""
        return (features_BD @ self.fc.weight.T).softmax(dim=1)
