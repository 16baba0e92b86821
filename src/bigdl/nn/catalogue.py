"""The catalogue: every layer that is only a mapping to torch, as one list, by family.

A row is BigDL's signature, what computes it, and what it does. A function gets the tensor (or the table) and those of
the arguments that it names; a class is a module with weights, made from those that it names.
"""

from __future__ import annotations

import torch
from torch.nn import functional as fn

from bigdl.nn import functions_pooling as pooling
from bigdl.nn import functions_shape as shape
from bigdl.nn import functions_table as table
from bigdl.nn import functions_value as value
from bigdl.nn import parts_convolution as convolution
from bigdl.nn import parts_linear as linear
from bigdl.nn import parts_normalization as normalization
from bigdl.nn import parts_recurrent as cells
from bigdl.nn.base import Layer
from bigdl.nn.tabled import Row, layer_class, row

# fmt: off
FAMILIES: dict[str, list[Row]] = {
    "Linear, and weights one by one": [
        row("Linear(input_size, output_size, with_bias=True, *weights)", linear.Linear, "y = W x + b."),
        row("SparseLinear(input_size, output_size, with_bias=True, backwardStart=-1, backwardLength=-1, *weights)",
            linear.SparseLinear,
            "Linear; backwardStart and backwardLength say which part of the input has a gradient."),
        row("Bilinear(input_size1, input_size2, output_size, bias_res=True, *regularizers)", linear.Bilinear,
            "y_k = a W_k b + bias_k of a table of two, a and b."),
        row("LookupTable(n_index, n_output, padding_value=0.0, max_norm=DOUBLEMAX, norm_type=2.0, "
            "should_scale_grad_by_freq=False, wRegularizer=None)", linear.LookupTable,
            "The rows of a table of weights for ids that count from 1; the row padding_value does not learn."),
        row("Cosine(input_size, output_size)", linear.Cosine,
            "The cosine between the input and each row of the weight."),
        row("Euclidean(input_size, output_size, fast_backward=True)", linear.Euclidean,
            "The distance of the input from each column of the weight."),
        row("Add(input_size)", linear.Add, "A learned value is added to each element of a record."),
        row("CAdd(size, bRegularizer=None)", linear.CAdd,
            "A learned tensor of the size is added; sides of 1 are spread."),
        row("Mul()", linear.Mul, "Everything times one learned number."),
        row("CMul(size, wRegularizer=None)", linear.CMul, "Times a learned tensor of the size; sides of 1 are spread."),
        row("Scale(size)", linear.Scale, "CMul(size), then CAdd(size)."),
        row("AddConstant(constant_scalar, inplace=False)", lambda x, constant_scalar: x + constant_scalar,
            "x + constant."),
        row("MulConstant(scalar, inplace=False)", lambda x, scalar: x * scalar, "x * constant."),
        row("Maxout(input_size, output_size, maxout_number, with_bias=True, w_regularizer=None, b_regularizer=None, "
            "init_weight=None, init_bias=None)", linear.Maxout,
            "The highest of maxout_number linear layers, element by element."),
        row("Highway(size, with_bias=True, activation=None, *regularizers)", linear.Highway,
            "t * g + (1 - t) * x, with t = sigmoid(W' x + b') and g = activation(W x + b); tanh if left out."),
        row("FeedForwardNetwork(hidden_size, filter_size, relu_dropout)", linear.FeedForward,
            "Two linear layers with ReLU and dropout between them, as in a transformer."),
        row("Attention(hidden_size, num_heads, attention_dropout)", linear.Attention,
            "What queries find among keys: a table of (batch, length, size) twice, and a bias of each pair."),
    ],
    "Convolutions": [
        row("TemporalConvolution(input_frame_size, output_frame_size, kernel_w, stride_w=1, propagate_back=True, "
            "weight_regularizer=None, bias_regularizer=None, *initial)", convolution.Temporal,
            "A convolution over (batch, frames, size)."),
        row("SpatialConvolution(n_input_plane, n_output_plane, kernel_w, kernel_h, stride_w=1, stride_h=1, pad_w=0, "
            "pad_h=0, n_group=1, propagate_back=True, *weights, with_bias=True, data_format='NCHW')",
            convolution.Spatial, "A convolution over images; a padding of -1 gives an output for every stride."),
        row("SpatialShareConvolution(n_input_plane, n_output_plane, kernel_w, kernel_h, stride_w=1, stride_h=1, "
            "pad_w=0, pad_h=0, n_group=1, propagate_back=True, *weights, with_bias=True)", convolution.Spatial,
            "SpatialConvolution, which shared buffers in BigDL."),
        row("SpatialDilatedConvolution(n_input_plane, n_output_plane, kw, kh, dw=1, dh=1, pad_w=0, pad_h=0, "
            "dilation_w=1, dilation_h=1, *regularizers)", convolution.Dilated, "A convolution whose kernel has gaps."),
        row("SpatialFullConvolution(n_input_plane, n_output_plane, kw, kh, dw=1, dh=1, pad_w=0, pad_h=0, adj_w=0, "
            "adj_h=0, n_group=1, no_bias=False, *regularizers)", convolution.SpatialFull,
            "A transposed convolution over images."),
        row("SpatialSeparableConvolution(n_input_channel, n_output_channel, depth_multiplier, kernel_w, kernel_h, "
            "stride_w=1, stride_h=1, pad_w=0, pad_h=0, with_bias=True, data_format='NCHW', w_regularizer=None, "
            "b_regularizer=None, p_regularizer=None)", convolution.Separable,
            "Each plane for itself, then all planes point by point."),
        row("SpatialConvolutionMap(conn_table, kw, kh, dw=1, dh=1, pad_w=0, pad_h=0, *regularizers)",
            convolution.Mapped,
            "A convolution between the pairs of planes (input, output) of a table, counted from 1."),
        row("VolumetricConvolution(n_input_plane, n_output_plane, k_t, k_w, k_h, d_t=1, d_w=1, d_h=1, pad_t=0, "
            "pad_w=0, pad_h=0, with_bias=True, *regularizers)", convolution.Volumetric,
            "A convolution over (batch, plane, t, h, w)."),
        row("VolumetricFullConvolution(n_input_plane, n_output_plane, kt, kw, kh, dt=1, dw=1, dh=1, pad_t=0, pad_w=0, "
            "pad_h=0, adj_t=0, adj_w=0, adj_h=0, n_group=1, no_bias=False, *regularizers)", convolution.VolumetricFull,
            "A transposed convolution over volumes."),
        row("LocallyConnected1D(n_input_frame, input_frame_size, output_frame_size, kernel_w, stride_w=1, "
            "propagate_back=True, weight_regularizer=None, bias_regularizer=None, *initial)", convolution.Local1D,
            "TemporalConvolution with weights of their own at each place."),
        row("LocallyConnected2D(n_input_plane, input_width, input_height, n_output_plane, kernel_w, kernel_h, "
            "stride_w=1, stride_h=1, pad_w=0, pad_h=0, propagate_back=True, *weights, with_bias=True, "
            "data_format='NCHW')", convolution.Local2D, "SpatialConvolution with weights of their own at each place."),
    ],
    "Pooling": [
        row("TemporalMaxPooling(k_w, d_w=-1)", pooling.max_1d, "The highest of k_w frames; k_w = -1 for all of them."),
        row("SpatialMaxPooling(kw, kh, dw=1, dh=1, pad_w=0, pad_h=0, to_ceil=False, format='NCHW')", pooling.max_2d,
            "The highest value of each window of an image."),
        row("SpatialAveragePooling(kw, kh, dw=1, dh=1, pad_w=0, pad_h=0, global_pooling=False, ceil_mode=False, "
            "count_include_pad=True, divide=True, format='NCHW')", pooling.average_2d,
            "The mean (the sum if divide is False) of each window of an image."),
        row("VolumetricMaxPooling(k_t, k_w, k_h, d_t=1, d_w=1, d_h=1, pad_t=0, pad_w=0, pad_h=0)", pooling.max_3d,
            "The highest value of each window of a volume."),
        row("VolumetricAveragePooling(k_t, k_w, k_h, d_t=1, d_w=1, d_h=1, pad_t=0, pad_w=0, pad_h=0, "
            "count_include_pad=True, ceil_mode=False)", pooling.average_3d, "The mean of each window of a volume."),
    ],
    "Normalisation": [
        row("BatchNormalization(n_output, eps=1e-5, momentum=0.1, affine=True, *initial)", normalization.BatchNorm,
            "Each feature over the batch to mean 0 and variance 1; then scaled and shifted."),
        row("SpatialBatchNormalization(n_output, eps=1e-5, momentum=0.1, affine=True, *initial, data_format='NCHW')",
            normalization.SpatialBatchNorm, "BatchNormalization of the planes of images."),
        row("VolumetricBatchNormalization(n_output, eps=1e-5, momentum=0.1, affine=True, *initial)",
            normalization.VolumetricBatchNorm, "BatchNormalization of the planes of volumes."),
        row("LayerNormalization(hidden_size)", normalization.LayerNorm,
            "Each record's last dimension to mean 0 and variance 1."),
        row("SpatialCrossMapLRN(size=5, alpha=1.0, beta=0.75, k=1.0, data_format='NCHW')", normalization.cross_map,
            "Divided by (k + alpha / size * the squares of size neighbouring planes) ** beta."),
        row("SpatialWithinChannelLRN(size=5, alpha=1.0, beta=0.75)", normalization.within_channel,
            "Divided by (1 + alpha * the mean of the squares around it) ** beta."),
        row("Normalize(p, eps=1e-10)", value.normalize,
            "Divided by the p-norm of the record, or of the planes at a place."),
        row("NormalizeScale(p, scale, size, w_regularizer=None, eps=1e-10)", linear.NormalizeScale,
            "Normalize(p), then times a learned tensor of the size that begins as scale."),
        row("SpatialSubtractiveNormalization(n_input_plane=1, kernel=None)", normalization.Subtractive,
            "Less the mean of the neighbourhood, weighed by a kernel (9 x 9 ones)."),
        row("SpatialDivisiveNormalization(n_input_plane=1, kernel=None, threshold=1e-4, thresval=1e-4)",
            normalization.Divisive, "Divided by the deviation of the neighbourhood, weighed by a kernel (9 x 9 ones)."),
        row("SpatialContrastiveNormalization(n_input_plane=1, kernel=None, threshold=1e-4, thresval=1e-4)",
            normalization.Contrastive, "SpatialSubtractiveNormalization, then SpatialDivisiveNormalization."),
    ],
    "Activations, and functions of each value": [
        row("ReLU(ip=False)", lambda x: fn.relu(x), "max(x, 0)."),
        row("ReLU6(inplace=False)", lambda x: fn.relu6(x), "min(max(x, 0), 6)."),
        row("PReLU(n_output_plane=0)", linear.PReLU,
            "x, or a learned slope (one a plane, or one for all) times it below 0."),
        row("RReLU(lower=0.125, upper=0.3333333333333333, inplace=False)",
            lambda x, lower, upper, training: fn.rrelu(x, lower, upper, training),
            "LeakyReLU with a random slope while training."),
        row("LeakyReLU(negval=0.01, inplace=False)", lambda x, negval: fn.leaky_relu(x, negval),
            "x, or negval * x below 0."),
        row("SReLU(input_shape, shared_axes=None)", linear.SReLU,
            "x between two learned limits, other slopes beyond them."),
        row("ELU(alpha=1.0, inplace=False)", lambda x, alpha: fn.elu(x, alpha), "x, or alpha * (exp(x) - 1) below 0."),
        row("Tanh()", lambda x: torch.tanh(x), "tanh(x)."),
        row("TanhShrink()", lambda x: fn.tanhshrink(x), "x - tanh(x)."),
        row("Sigmoid()", lambda x: torch.sigmoid(x), "1 / (1 + exp(-x))."),
        row("LogSigmoid()", lambda x: fn.logsigmoid(x), "log(sigmoid(x))."),
        row("HardSigmoid()", lambda x: (0.2 * x + 0.5).clamp(0, 1), "0.2 x + 0.5, between 0 and 1."),
        row("HardTanh(min_value=-1.0, max_value=1.0, inplace=False)",
            lambda x, min_value, max_value: fn.hardtanh(x, min_value, max_value), "x, between two limits."),
        row("Clamp(min, max)", lambda x, min, max: fn.hardtanh(x, min, max), "x, between two limits."),
        row("HardShrink(the_lambda=0.5)", lambda x, the_lambda: fn.hardshrink(x, the_lambda), "x, or 0 within lambda."),
        row("SoftShrink(the_lambda=0.5)", lambda x, the_lambda: fn.softshrink(x, the_lambda), "x, lambda nearer to 0."),
        row("SoftPlus(beta=1.0)", lambda x, beta: fn.softplus(x, beta), "log(1 + exp(beta x)) / beta."),
        row("SoftSign()", lambda x: fn.softsign(x), "x / (1 + |x|)."),
        row("SoftMax()", value.softmax, "exp(x), divided by its sum over the classes (or planes)."),
        row("SoftMin()", value.softmin, "SoftMax of -x."),
        row("LogSoftMax()", value.log_softmax, "log(SoftMax(x)), for ClassNLLCriterion."),
        row("Threshold(th=1e-6, v=0.0, ip=False)", lambda x, th, v: fn.threshold(x, th, v), "x, or v up to th."),
        row("BinaryThreshold(th=1e-6, ip=False)", lambda x, th: (x > th).to(x.dtype), "1 above th, 0 elsewhere."),
        row("Abs()", lambda x: x.abs(), "|x|."),
        row("Square()", lambda x: x.square(), "x ** 2."),
        row("Sqrt()", lambda x: x.sqrt(), "The square root."),
        row("Power(power, scale=1.0, shift=0.0)", lambda x, power, scale, shift: (shift + scale * x).pow(power),
            "(shift + scale * x) ** power."),
        row("Exp()", lambda x: x.exp(), "exp(x)."),
        row("Log()", lambda x: x.log(), "log(x)."),
        row("Negative(inplace=False)", lambda x: -x, "-x."),
    ],
    "Dropout and noise, while training": [
        row("Dropout(init_p=0.5, inplace=False, scale=True)", value.dropout,
            "Zero with probability init_p; the others are scaled, so that the mean stays."),
        row("GaussianDropout(rate)", value.gaussian_dropout,
            "Times normal noise of mean 1, as strong as Dropout(rate)."),
        row("GaussianNoise(stddev)", value.gaussian_noise, "Plus normal noise."),
        row("SpatialDropout1D(init_p=0.5)", value.dropout_1d, "Dropout of whole features of (batch, time, feature)."),
        row("SpatialDropout2D(init_p=0.5, data_format='NCHW')", value.dropout_2d, "Dropout of whole planes of images."),
        row("SpatialDropout3D(init_p=0.5, data_format='NCHW')", value.dropout_3d,
            "Dropout of whole planes of volumes."),
        row("GaussianSampler()", table.sample,
            "A sample around the first of a table, with the second as log variance."),
    ],
    "The gradient alone": [
        row("GradientReversal(the_lambda=1.0)", value.reverse_gradient, "x; its gradient times -lambda."),
        row("L1Penalty(l1weight, size_average=False, provide_output=True)", value.l1_penalty,
            "x; its gradient has that of l1weight * |x| added, or is that alone."),
        row("ActivityRegularization(l1, l2)", value.activity,
            "x; while training its gradient has that of l1 |x| + l2 x² added."),
        row("NegativeEntropyPenalty(beta=0.01)", value.negative_entropy,
            "x; while training its gradient has that of beta * x log(x) added."),
    ],
    "Cells of recurrent networks": [
        row("RnnCell(input_size, hidden_size, activation, isInputWithBias=True, isHiddenWithBias=True, *recurrent)",
            cells.Rnn, "activation(W x + b + U h + b')."),
        row("LSTM(input_size, hidden_size, p=0.0, activation=None, inner_activation=None, *recurrent)", cells.Lstm,
            "Long short-term memory; the rows of its weights are those of input, forget, candidate and output gate."),
        row("LSTMPeephole(input_size=4, hidden_size=3, p=0.0, *recurrent)", cells.LstmPeephole,
            "LSTM whose gates see the cell, too."),
        row("GRU(input_size, hidden_size, p=0.0, activation=None, inner_activation=None, *recurrent)", cells.Gru,
            "Gated recurrent unit; the rows of its weights are those of reset gate, update gate and candidate."),
        row("ConvLSTMPeephole(input_size, output_size, kernel_i, kernel_c, stride=1, padding=-1, activation=None, "
            "inner_activation=None, *recurrent, cRegularizer=None, with_peephole=True)", cells.ConvLstm,
            "LSTMPeephole of images, with convolutions: (batch, time, plane, h, w)."),
        row("ConvLSTMPeephole3D(input_size, output_size, kernel_i, kernel_c, stride=1, padding=-1, *recurrent, "
            "cRegularizer=None, with_peephole=True)", cells.ConvLstm3D, "LSTMPeephole of volumes, with convolutions."),
        row("MultiRNNCell(cells)", cells.Stacked, "Cells one upon the other, taken as one."),
    ],
    "Tables": [
        row("CAddTable(inplace=False)", table.add, "The sum of a table."),
        row("CSubTable()", lambda x: x[0] - x[1], "The first less the second."),
        row("CMulTable()", table.multiply, "The product of a table."),
        row("CDivTable()", lambda x: x[0] / x[1], "The first divided by the second."),
        row("CMaxTable()", table.highest, "The highest of a table, element by element."),
        row("CMinTable()", table.lowest, "The lowest of a table, element by element."),
        row("CAveTable(inplace=False)", table.average, "The mean of a table."),
        row("JoinTable(dimension, n_input_dims=-1)", table.join,
            "A table joined along a dimension of a record of n_input_dims dimensions."),
        row("SplitTable(dimension, n_input_dims=-1)", table.split, "The table of the parts along a dimension."),
        row("BifurcateSplitTable(dimension)", table.bifurcate, "The table of the two halves along a dimension."),
        row("NarrowTable(offset, length=1)", table.narrow, "A part of a table; a length of -1 is up to its end."),
        row("FlattenTable()", table.flatten, "A table of tables as one table."),
        row("SelectTable(index)", table.select, "One entry of a table, counted from 1; negative from the end."),
        row("MixtureTable(dim=INTMAX)", table.mixture,
            "Experts (the second of a table) weighed by a gate (the first)."),
        row("DotProduct()", table.dot, "The dot product of the two of a table, record by record."),
        row("CosineDistance()", table.cosine, "The cosine between the two of a table, record by record."),
        row("PairwiseDistance(norm=2)", table.distance, "The distance of the two of a table, record by record."),
        row("MM(trans_a=False, trans_b=False)", table.matrix_product, "The matrix product of the two of a table."),
        row("MV(trans=False)", table.vector_product, "A matrix times a vector, the two of a table."),
        row("CrossProduct(numTensor=0, embeddingSize=0)", table.cross_product,
            "The dot products of all pairs of a table."),
        row("Pack(dimension)", table.pack, "A table stacked along a new dimension."),
        row("MaskedSelect()", table.masked_select, "The values of the first of a table where the second is not 0."),
        row("Index(dimension)", table.index,
            "The parts of the first of a table that the second names, counted from 1."),
    ],
    "Shapes": [
        row("Reshape(size, batch_mode=None)", shape.reshape,
            "Another shape of a record; batch_mode says whether there is a batch, which None finds out from the size."),
        row("InferReshape(size, batch_mode=False)", shape.infer_reshape,
            "Another shape; 0 keeps a side, -1 is what is left."),
        row("View(sizes, num_input_dims=0)", shape.view,
            "Another shape of a record, which has num_input_dims dimensions."),
        row("Transpose(permutations)", shape.transpose, "Pairs of dimensions exchanged, one after the other."),
        row("Squeeze(dim=None, num_input_dims=INTMIN)", shape.squeeze, "Without a side of 1, or without all of them."),
        row("Unsqueeze(pos, num_input_dims=INTMIN)", shape.unsqueeze, "With a side of 1 at a position."),
        row("Select(dim, index)", shape.select, "One part along a dimension; negative counts from the end."),
        row("Narrow(dimension, offset, length=1)", shape.narrow,
            "Some parts along a dimension; a length of -1 is to the end."),
        row("Padding(dim, pad, n_input_dim, value=0.0, n_index=1)", shape.padding,
            "A value put before (pad < 0) or behind a dimension."),
        row("SpatialZeroPadding(pad_left, pad_right, pad_top, pad_bottom)", shape.zero_pad,
            "Zeros around images; a negative number crops."),
        row("Replicate(n_features, dim=1, n_dim=INTMAX)", shape.replicate, "Copies along a new dimension."),
        row("ExpandSize(sizes)", shape.expand, "Sides of 1 spread to a size; -1 keeps a side."),
        row("Tile(dim=1, copies=2)", shape.tile, "Copies one behind the other along a dimension."),
        row("Reverse(dimension=1, is_inplace=False)", lambda x, dimension: x.flip(dimension - 1),
            "A dimension backwards."),
        row("Contiguous()", lambda x: x.contiguous(), "The same values, without gaps in memory."),
        row("Identity()", lambda x: x, "The input as it is."),
        row("Echo()", shape.echo, "The input as it is; its shape goes to the log."),
        row("Masking(mask_value=0.0)", shape.masking, "Zeros for the time steps whose values are all mask_value."),
        row("Mean(dimension=1, n_input_dims=-1, squeeze=True)", shape.mean, "The mean along a dimension."),
        row("Sum(dimension=1, n_input_dims=-1, size_average=False, squeeze=True)", shape.total,
            "The sum along a dimension."),
        row("Max(dim, num_input_dims=INTMIN)", shape.largest, "The highest along a dimension."),
        row("Min(dim=1, num_input_dims=INTMIN)", shape.smallest, "The lowest along a dimension."),
        row("ResizeBilinear(output_height, output_width, align_corner=False, data_format='NCHW')",
            shape.resize_bilinear, "Images in another size, as TensorFlow's resize_bilinear does it."),
        row("UpSampling1D(length)", shape.upsample_1d, "Each time step so many times."),
        row("UpSampling2D(size, data_format='nchw')", shape.upsample_2d, "Rows and columns of images so many times."),
        row("UpSampling3D(size)", shape.upsample_3d, "The three sides of volumes so many times."),
        row("Cropping2D(heightCrop, widthCrop, data_format='NCHW')", shape.crop_2d,
            "Images without (before, behind) of a side."),
        row("Cropping3D(dim1Crop, dim2Crop, dim3Crop, data_format='channel_first')", shape.crop_3d,
            "Volumes without (before, behind) of a side."),
    ],
}
# fmt: on

_BY_NAME = {each.name: each for rows in FAMILIES.values() for each in rows}
#: The classes, by name; `bigdl.nn.layer` has them all.
CLASSES: dict[str, type[Layer]] = {name: layer_class(each) for name, each in _BY_NAME.items()}


def row_named(name: str) -> Row:
    """The row of a layer; pickles refer to rows by this."""
    return _BY_NAME[name]
