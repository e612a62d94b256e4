"""Drivers that only see the scan: follow-the-gap and the disparity extender. Both give an angle to aim at.

Beams run from the right (negative angles) to the left; `room` is scratch space for a changed copy of the scan.
"""

import math

from numba import njit

VIEW = 1.4  # radians to either side: what lies further back is behind the car
DISPARITY = 0.3  # metres between neighbouring beams that mean an edge
BERTH = 0.25  # metres that the drivers keep between the car's side and an edge
STOPPING_ROOM = 0.5  # metres that they want left when they have braked
SMALLEST_GAP = 1.0  # metres: a beam shorter than this is no gap


@njit(nogil=True)
def visible(beams, field_of_view):
    """(first, last, spacing): the beams within VIEW, and the angle between two."""
    spacing = field_of_view / (beams - 1)
    first = max(0, math.ceil((0.5 * field_of_view - VIEW) / spacing))
    return first, beams - 1 - first, spacing


@njit(nogil=True)
def follow_the_gap(scan, room, field_of_view, half_width):
    """Blank a bubble around the nearest obstacle, take the widest run of free beams, aim at its middle.

    The middle is weighted by squared depth; the deepest beam alone would jump about.
    """
    first, last, spacing = visible(scan.shape[0], field_of_view)
    nearest = first
    for i in range(first, last + 1):
        room[i] = scan[i]
        if scan[i] < scan[nearest]:
            nearest = i
    reach = math.atan2(half_width, max(scan[nearest], 1e-3))
    for i in range(first, last + 1):
        if abs(i - nearest) * spacing <= reach:
            room[i] = 0.0
    threshold = SMALLEST_GAP
    begin, size = first, 0
    while size == 0 and threshold > 0.01:
        start = first
        for i in range(first, last + 2):
            if i > last or room[i] < threshold:
                if i - start > size:
                    begin, size = start, i - start
                start = i + 1
        threshold *= 0.5
    weight, moment = 0.0, 0.0
    for i in range(begin, begin + size):
        weight += room[i] ** 2
        moment += room[i] ** 2 * i
    if weight == 0.0:
        return 0.0
    return moment / weight * spacing - 0.5 * field_of_view


@njit(nogil=True)
def disparity_extender(scan, room, field_of_view, half_width):
    """Behind every edge the free distance is that of the edge for half a car's width; aim at what is deepest then."""
    first, last, spacing = visible(scan.shape[0], field_of_view)
    for i in range(first, last + 1):
        room[i] = scan[i]
    for i in range(first, last):
        if abs(scan[i + 1] - scan[i]) <= DISPARITY:
            continue
        near = min(scan[i], scan[i + 1])
        count = math.ceil(math.atan2(half_width, max(near, 1e-3)) / spacing)
        way = 1 if scan[i + 1] > scan[i] else -1
        edge = i if way > 0 else i + 1
        for k in range(1, count + 1):
            j = edge + way * k
            if j < first or j > last:
                break
            room[j] = min(room[j], near)
    deepest = first
    for i in range(first, last + 1):
        if room[i] > room[deepest]:
            deepest = i
    low, high = deepest, deepest
    while high < last and room[high + 1] >= 0.97 * room[deepest]:
        high += 1
    while low > first and room[low - 1] >= 0.97 * room[deepest]:
        low -= 1
    return 0.5 * (low + high) * spacing - 0.5 * field_of_view


@njit(nogil=True)
def free_ahead(scan, field_of_view, angle, half_width):
    """How far the car could drive straight on at that angle before a scanned point lies in its way."""
    beams = scan.shape[0]
    spacing = field_of_view / (beams - 1)
    free = 1e9
    for i in range(beams):
        off = i * spacing - 0.5 * field_of_view - angle
        if abs(off) < 0.5 * math.pi and abs(scan[i] * math.sin(off)) <= half_width:
            free = min(free, scan[i] * math.cos(off))
    if free == 1e9:  # between two beams: the one that looks that way
        i = round((angle + 0.5 * field_of_view) / spacing)
        return scan[min(max(i, 0), beams - 1)]
    return free
