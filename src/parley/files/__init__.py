"""Files that messages refer to: uploads, downloads, previews, and their end. See docs/attachments.md."""
