-- Ends a reader's seat. hears.lua, seats.lua, and release.lua with handon.lua as a function, are
-- sent in front.
--
--     KEYS: key, queue, seats   ARGV: those of release.lua
--
-- It returns 3 if others go on reading, and otherwise what release.lua does: the last reader
-- deletes the key, or hands it on. A seat that is kept for the member ends, too. With a ticket, a
-- member that had neither seat keeps the place that it has, or none: it may have been served since.

local value, member, reads = ARGV[1], ARGV[3], call('GET', key) == shared
local mine = reads and sits(value)
local had = reads and call('ZREM', seats, value, '~' .. (member or '')) > 0
if reads and keep() then
	if member and not ARGV[4] then pcall('ZREM', queue, member) end
	if ARGV[4] and had and type(pcall('ZADD', queue, ARGV[4], member)) == 'number' then
		call('PEXPIRE', queue, ARGV[5])
	end
	admit(ARGV[2], member)
	return mine and 3 or -2 - call('PTTL', key)
end
if reads then ARGV[1] = shared end
local reply = release()
if reads and not mine and reply > 0 then return 0 end
return reply
