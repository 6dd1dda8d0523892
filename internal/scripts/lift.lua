-- Lifts the fence counter to a reader's token. hears.lua and seats.lua are sent in front, and
-- raise.lua behind: the marker is as good as the value of a reader that has a seat.
--
--     KEYS: key, fence, seats   ARGV: those of raise.lua

if call('GET', key) == shared and sits(ARGV[1]) then ARGV[1] = shared end
