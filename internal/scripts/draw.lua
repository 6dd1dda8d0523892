-- Draws a ticket for somebody who does not stand in the queue yet.
--
--     KEYS: last   ARGV: ticket, keep ms
--
-- It returns the ticket, which becomes greater than any that the node has heard of. The greatest is
-- kept under last: see stand.lua.

local last = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
local ticket = math.max(tonumber(ARGV[1]), last + 1)
redis.call('SET', KEYS[1], string.format('%.0f', ticket), 'PX', ARGV[2])
return ticket
