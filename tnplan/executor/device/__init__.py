"""The device layer: arrays, kernels and communicators. Knows boxes and strides, never schedules."""
