#include "kernels/kernels.h"
